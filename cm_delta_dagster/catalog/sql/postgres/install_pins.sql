-- The function by which roles that do not own the catalog's tables pin versions.

CREATE OR REPLACE FUNCTION {schema}.cm_delta_pin_version(of_table text, of_version bigint, of_owner text, is_raised boolean)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- Returns the version that the caller has pinned. NULL: there is no such table that the caller may read. A pin never goes back, and
-- nobody deletes it before it is old. It belongs to the caller. Who may commit moves the pins of all callers for a run, which read
-- what the run has written.
DECLARE
    now_ms bigint := cm_delta_now_ms();
    is_writer boolean := cm_delta_holds(of_table, ARRAY['append', 'alter', 'maintain']);
    pinned bigint;
BEGIN
    PERFORM cm_delta_require_read_committed();
    IF NOT cm_delta_holds(of_table, ARRAY['read']) THEN
        RETURN NULL;
    END IF;
    DELETE FROM cm_delta_version_pins p WHERE p.pinned_ms < now_ms - {pin_lifetime_ms};
    INSERT INTO cm_delta_version_pins (owner, table_id, version, pinned_ms, principal)
    SELECT of_owner, t.table_id, of_version, now_ms, session_user FROM cm_delta_tables t
    WHERE t.table_id = of_table AND of_version BETWEEN 0 AND t.latest_version AND length(of_owner) BETWEEN 1 AND 500
        AND NOT EXISTS (
            SELECT FROM cm_delta_version_pins p WHERE p.owner = of_owner AND p.table_id = of_table AND p.principal IN (session_user, ''))
    ON CONFLICT DO NOTHING;
    IF is_raised THEN
        UPDATE cm_delta_version_pins p SET version = of_version, pinned_ms = now_ms
        FROM cm_delta_tables t
        WHERE p.owner = of_owner AND p.table_id = of_table AND p.version < of_version
            AND (p.principal = session_user OR is_writer) AND t.table_id = of_table AND of_version <= t.latest_version;
    END IF;
    SELECT max(p.version) INTO pinned FROM cm_delta_version_pins p
    WHERE p.owner = of_owner AND p.table_id = of_table AND p.principal IN (session_user, '');
    RETURN pinned;
END $$;
