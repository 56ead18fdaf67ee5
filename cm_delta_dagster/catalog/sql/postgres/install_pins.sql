-- The function by which roles that do not own the catalog's tables pin versions.

CREATE OR REPLACE FUNCTION {schema}.cm_delta_pin_version(of_table text, of_version bigint, of_owner text, is_raised boolean)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- Returns the pinned version. NULL: there is no such table that the caller may read. A pin never goes back, and nobody deletes it
-- before it is old.
DECLARE
    now_ms bigint := cm_delta_now_ms();
    pinned bigint;
BEGIN
    IF NOT cm_delta_holds(of_table, ARRAY['read']) THEN
        RETURN NULL;
    END IF;
    DELETE FROM cm_delta_version_pins p WHERE p.pinned_ms < now_ms - {pin_lifetime_ms};
    INSERT INTO cm_delta_version_pins (owner, table_id, version, pinned_ms)
    SELECT of_owner, t.table_id, of_version, now_ms FROM cm_delta_tables t
    WHERE t.table_id = of_table AND of_version BETWEEN 0 AND t.latest_version AND length(of_owner) BETWEEN 1 AND 500
    ON CONFLICT DO NOTHING;
    IF is_raised THEN
        UPDATE cm_delta_version_pins p SET version = of_version, pinned_ms = now_ms
        FROM cm_delta_tables t
        WHERE p.owner = of_owner AND p.table_id = of_table AND p.version < of_version
            AND t.table_id = of_table AND of_version <= t.latest_version;
    END IF;
    SELECT p.version INTO pinned FROM cm_delta_version_pins p WHERE p.owner = of_owner AND p.table_id = of_table;
    RETURN pinned;
END $$;
