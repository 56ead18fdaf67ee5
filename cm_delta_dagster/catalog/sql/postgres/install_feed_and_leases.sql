-- Functions by which roles that do not own the catalog's tables use its feed and its leases. install_grants.sql, which runs
-- next, has the functions of privileges that these call, and says which of these are for callers.

CREATE OR REPLACE FUNCTION {schema}.cm_delta_now_ms() RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_require_read_committed() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- A transaction with another isolation level reads the grants and rules that there were when it began, e.g. before a revocation.
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the catalog cannot be changed at the isolation level %, which does not read the latest grants and rules',
            current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state', HINT = 'Use the isolation level READ COMMITTED.';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_name(head {schema}.cm_delta_tables) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT head.catalog_name || '.' || head.schema_name || '.' || head.table_name
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_has_waiters() RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT EXISTS (SELECT FROM cm_delta_feed_waiters w WHERE w.until_ms > cm_delta_now_ms())
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_append_entry(
    of_kind text, of_table text, of_version bigint, of_scope text, of_actor text, facts jsonb
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- The entry gets its position later. An entry of a table is appended under the lock of its row.
BEGIN
    PERFORM FROM cm_delta_feed_counter f WHERE f.counter_id = 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the feed of the catalog has lost its counter; restore the database from a backup';
    END IF;
    INSERT INTO cm_delta_feed (kind, at_ms, table_id, version, scope, actor, details)
    VALUES (of_kind, cm_delta_now_ms(), of_table, of_version, of_scope, of_actor, facts::text);
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_record(
    of_action text, of_scope text, of_table text, before text, after text, because text, of_outcome text
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- One row of the audit, with its entry of the feed.
BEGIN
    PERFORM cm_delta_append_entry(
        CASE WHEN of_outcome = 'refused' THEN 'PROPOSAL_REFUSED' WHEN of_action LIKE '% lease' THEN 'LEASE_CHANGED'
            ELSE 'POLICY_CHANGED' END, of_table, NULL, of_scope, session_user,
        jsonb_strip_nulls(jsonb_build_object('action', of_action, 'before', before, 'after', after, 'reason', nullif(because, ''))));
    INSERT INTO cm_delta_audit (at_ms, principal, action, scope, table_id, state_before, state_after, reason, outcome)
    VALUES (cm_delta_now_ms(), session_user, of_action, of_scope, of_table, before, after, because, of_outcome);
    IF cm_delta_has_waiters() THEN
        PERFORM pg_notify('{channel}', '');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_place() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- Gives committed entries their positions, as feed_entries.place does. Returns whether more entries may wait.
DECLARE
    latest bigint;
    placed bigint;
BEGIN
    SELECT f.position INTO latest FROM cm_delta_feed_counter f WHERE f.counter_id = 1 FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the feed of the catalog has lost its counter; restore the database from a backup';
    END IF;
    UPDATE cm_delta_feed f SET position = latest + n.number
    FROM (
        SELECT o.entry_id, row_number() OVER (ORDER BY o.entry_id) AS number
        FROM (SELECT u.entry_id FROM cm_delta_feed u WHERE u.position IS NULL ORDER BY u.entry_id LIMIT {place_limit}) o
    ) n
    WHERE f.entry_id = n.entry_id;
    GET DIAGNOSTICS placed = ROW_COUNT;
    UPDATE cm_delta_feed_counter f SET position = latest + placed WHERE f.counter_id = 1;
    RETURN placed = {place_limit};
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_locked_for_lease(of_table text) RETURNS {schema}.cm_delta_tables
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- Locks the row of the table. A row of NULL: there is no such table that the caller may read.
DECLARE
    head cm_delta_tables;
BEGIN
    PERFORM cm_delta_require_read_committed();
    SELECT * INTO head FROM cm_delta_tables t WHERE t.table_id = of_table AND t.state IN ('active', 'purging')
        AND cm_delta_holds(of_table, ARRAY['read']) FOR UPDATE;
    RETURN head;
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_lease_text(held {schema}.cm_delta_maintenance_claims) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT held.owner || ' for ' || held.kind || ', token ' || held.token
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_lease_holder(held {schema}.cm_delta_maintenance_claims) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT jsonb_build_object('owner', held.owner, 'kind', held.kind, 'expires_ms', held.expires_ms)
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_acquire_lease(of_table text, of_kind text, of_owner text, duration_ms bigint)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- The name of the owner is no secret: a lease belongs to the role that acquired it, too.
DECLARE
    head cm_delta_tables;
    held cm_delta_maintenance_claims;
    now_ms bigint;
    new_token bigint;
BEGIN
    IF of_kind = ANY (ARRAY[{lease_kinds}]) AND length(of_owner) BETWEEN 1 AND 500 AND duration_ms > 0 THEN
        NULL;
    ELSE
        RETURN cm_delta_reject('a lease has a kind of maintenance, an owner of 1 to 500 characters, and a positive duration');
    END IF;
    head := cm_delta_locked_for_lease(of_table);
    IF head.table_id IS NULL THEN
        RETURN jsonb_build_object('answer', 'unknown_table');
    END IF;
    IF NOT cm_delta_holds(of_table, ARRAY['append', 'alter', 'maintain']) THEN
        RETURN jsonb_build_object('answer', 'refused');
    END IF;
    now_ms := cm_delta_now_ms();
    SELECT * INTO held FROM cm_delta_maintenance_claims c WHERE c.table_id = of_table;
    IF held.expires_ms > now_ms THEN
        IF held.owner <> of_owner OR held.principal IS DISTINCT FROM session_user THEN
            RETURN jsonb_build_object('answer', 'held', 'holder', cm_delta_lease_holder(held));
        END IF;
        UPDATE cm_delta_maintenance_claims c SET expires_ms = now_ms + duration_ms, kind = of_kind WHERE c.table_id = of_table;
        RETURN jsonb_build_object('answer', 'granted', 'expires_ms', now_ms + duration_ms, 'token', held.token);
    END IF;
    new_token := head.lease_token + 1;
    UPDATE cm_delta_tables t SET lease_token = new_token WHERE t.table_id = of_table;
    DELETE FROM cm_delta_maintenance_claims c WHERE c.table_id = of_table;
    INSERT INTO cm_delta_maintenance_claims (table_id, kind, owner, expires_ms, token, acquired_ms, principal)
    VALUES (of_table, of_kind, of_owner, now_ms + duration_ms, new_token, now_ms, session_user);
    PERFORM cm_delta_record(
        CASE WHEN held.table_id IS NULL THEN 'acquire lease' ELSE 'take over lease' END,
        cm_delta_name(head), of_table,
        cm_delta_lease_text(held) || ', which expired at '
            || to_char(to_timestamp(held.expires_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        of_owner || ' for ' || of_kind || ', token ' || new_token, '', 'done');
    RETURN jsonb_build_object('answer', 'granted', 'expires_ms', now_ms + duration_ms, 'token', new_token);
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_renew_lease(of_table text, of_token bigint, duration_ms bigint) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
DECLARE
    head cm_delta_tables := cm_delta_locked_for_lease(of_table);
    held cm_delta_maintenance_claims;
    now_ms bigint := cm_delta_now_ms();
BEGIN
    IF head.table_id IS NULL THEN
        RETURN jsonb_build_object('answer', 'unknown_table');
    END IF;
    IF coalesce(duration_ms, 0) <= 0 THEN
        RETURN cm_delta_reject('a lease has a positive duration');
    END IF;
    SELECT * INTO held FROM cm_delta_maintenance_claims c WHERE c.table_id = of_table AND c.expires_ms > now_ms;
    IF held.token = of_token AND held.principal = session_user THEN
        UPDATE cm_delta_maintenance_claims c SET expires_ms = now_ms + duration_ms WHERE c.table_id = of_table;
        RETURN jsonb_build_object('answer', 'granted', 'expires_ms', now_ms + duration_ms, 'token', of_token);
    END IF;
    RETURN jsonb_build_object('answer', 'lost',
        'holder', CASE WHEN held.table_id IS NOT NULL THEN cm_delta_lease_holder(held) END);
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_release_lease(of_table text, of_owner text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
DECLARE
    head cm_delta_tables;
    held cm_delta_maintenance_claims;
BEGIN
    SELECT * INTO head FROM cm_delta_tables t WHERE t.table_id = of_table FOR UPDATE;
    DELETE FROM cm_delta_maintenance_claims c
    WHERE c.table_id = of_table AND c.owner = of_owner AND c.principal = session_user RETURNING * INTO held;
    IF FOUND THEN
        PERFORM cm_delta_record('release lease', cm_delta_name(head),
            of_table, cm_delta_lease_text(held), NULL, '', 'done');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_expire_lease(of_table text, of_owner text, because text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- Ends the lease of another run.
DECLARE
    head cm_delta_tables := cm_delta_locked_for_lease(of_table);
    held cm_delta_maintenance_claims;
    name text := cm_delta_name(head);
BEGIN
    IF head.table_id IS NULL THEN
        RETURN jsonb_build_object('answer', 'unknown_table');
    END IF;
    IF NOT cm_delta_holds(of_table, ARRAY['maintain']) THEN
        RETURN jsonb_build_object('answer', 'refused');
    END IF;
    SELECT * INTO held FROM cm_delta_maintenance_claims c WHERE c.table_id = of_table;
    IF held.owner IS DISTINCT FROM of_owner OR of_owner IS NULL THEN
        RETURN jsonb_build_object('answer', 'not_held', 'name', name, 'holder', held.owner);
    END IF;
    UPDATE cm_delta_tables t SET lease_token = t.lease_token + 1 WHERE t.table_id = of_table;
    DELETE FROM cm_delta_maintenance_claims c WHERE c.table_id = of_table;
    PERFORM cm_delta_record('expire lease', name, of_table, cm_delta_lease_text(held), NULL, left(coalesce(because, ''), 4000), 'done');
    RETURN jsonb_build_object('answer', 'done');
END $$;
