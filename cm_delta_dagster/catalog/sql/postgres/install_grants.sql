-- Functions and rights by which PostgreSQL itself enforces grants. The role that owns the catalog's tables runs it.
-- {schema} is the quoted name of the schema that has the catalog's tables. Every function that callers or policies call has a fixed
-- search path, so that no object of a caller can take the place of one of these. No literal without E has a
-- backslash: the setting standard_conforming_strings of the caller would change it.

CREATE OR REPLACE FUNCTION {schema}.cm_delta_names() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    WITH RECURSIVE names(name) AS (
        SELECT session_user::text
        UNION SELECT m.role FROM cm_delta_role_members m JOIN names n ON m.member = n.name
    )
    SELECT name FROM names UNION SELECT 'public'
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_included(wanted text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    -- The privileges whose holders have one of the wanted ones.
    SELECT wanted || ARRAY['own']
        || CASE WHEN 'append' = ANY (wanted) THEN ARRAY['modify'] ELSE ARRAY[]::text[] END
        || CASE WHEN 'read' = ANY (wanted) THEN ARRAY['append', 'modify', 'alter', 'maintain'] ELSE ARRAY[]::text[] END
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_holds_all(wanted text[]) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM cm_delta_grants g
        WHERE g.scope = '*' AND g.privilege = ANY (cm_delta_included(wanted)) AND g.grantee IN (SELECT cm_delta_names())
    )
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_holds(of_table text, wanted text[]) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM cm_delta_tables t
        WHERE t.table_id = of_table AND (
            t.owner IN (SELECT cm_delta_names())
            OR EXISTS (
                SELECT FROM cm_delta_grants g
                WHERE g.grantee IN (SELECT cm_delta_names())
                    AND g.privilege = ANY (cm_delta_included(wanted))
                    AND g.scope IN ('*', t.catalog_name, t.catalog_name || '.' || t.schema_name, 'id:' || t.table_id)
            )
        )
    )
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_owners(of_table text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT coalesce(jsonb_agg(DISTINCT o.who), '[]') FROM (
        SELECT t.owner AS who FROM cm_delta_tables t WHERE t.table_id = of_table AND t.owner IS NOT NULL
        UNION SELECT g.grantee FROM cm_delta_grants g JOIN cm_delta_tables t ON t.table_id = of_table
        WHERE g.privilege = 'own'
            AND g.scope IN ('*', t.catalog_name, t.catalog_name || '.' || t.schema_name, 'id:' || t.table_id)
    ) AS o
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_refused(what text, of_table text, name text, lacking text[]) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
DECLARE
    because text := 'the principal ' || session_user || ' does not have the privilege'
        || CASE WHEN cardinality(lacking) > 1 THEN 's ' ELSE ' ' END || array_to_string(lacking, ' and ')
        || ' on ' || name;
BEGIN
    PERFORM cm_delta_record('commit', name, of_table, NULL, NULL, what || ': ' || because, 'refused');
    RETURN jsonb_build_object('answer', 'refused', 'table_id', of_table, 'what', what, 'reason', because, 'scope', name,
        'ask', cm_delta_owners(of_table));
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_reject(because text) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT jsonb_build_object('answer', 'rejected', 'reason', because)
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_lease_lost(what text, of_table text, name text, of_token bigint) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- The caller holds the lock of the table's row. NULL: the lease with this token is held.
DECLARE
    held cm_delta_maintenance_claims;
    because text := 'it belongs to a maintenance run whose lease (token ' || of_token || ') expired or was ended';
BEGIN
    SELECT * INTO held FROM cm_delta_maintenance_claims c WHERE c.table_id = of_table AND c.expires_ms > cm_delta_now_ms();
    IF held.token = of_token THEN
        RETURN NULL;
    END IF;
    IF held.table_id IS NOT NULL THEN
        because := because || '; ' || held.owner || ' holds the lease for ' || held.kind || ' now';
    END IF;
    PERFORM cm_delta_record('commit', name, of_table, NULL, NULL, what || ': ' || because, 'refused');
    RETURN jsonb_build_object('answer', 'lease_lost', 'table_id', of_table, 'what', what, 'reason', because, 'scope', name);
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_examine(
    of_table text, proposal jsonb, content bytea, with_rules boolean
) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- Locks the row of the table. NULL: the proposal can be accepted.
DECLARE
    head cm_delta_tables;
    known record;
    next bigint := (proposal ->> 'version')::bigint;
    stamp bigint := (proposal ->> 'in_commit_timestamp')::bigint;
    now_ms bigint := cm_delta_now_ms();
    info jsonb;
    needed text[] := ARRAY['modify', 'alter'];
    lacking text[];
    name text;
    what text;
    lost jsonb;
    request cm_delta_approvals;
BEGIN
    PERFORM cm_delta_require_read_committed();
    SELECT * INTO head FROM cm_delta_tables t WHERE t.table_id = of_table AND t.state = 'active' FOR UPDATE;
    IF NOT FOUND OR NOT cm_delta_holds(of_table, ARRAY['read']) THEN
        RETURN jsonb_build_object('answer', 'unknown_table', 'table_id', of_table);
    END IF;
    IF next <= head.latest_version THEN
        SELECT c.file_name, c.file_size INTO known FROM cm_delta_commits c WHERE c.table_id = of_table AND c.version = next;
        RETURN jsonb_build_object(
            'answer', CASE WHEN known.file_name = proposal ->> 'file_name' AND known.file_size = (proposal ->> 'file_size')::bigint
                THEN 'repeated' ELSE 'taken' END,
            'table_id', of_table, 'latest', head.latest_version, 'published', head.published_version);
    END IF;
    IF next <> head.latest_version + 1 THEN
        RETURN cm_delta_reject(format('version %s was proposed, but the latest is %s', next, head.latest_version));
    END IF;
    IF stamp <= head.latest_in_commit_timestamp
        OR (stamp > now_ms + {max_ahead_ms} AND stamp <> head.latest_in_commit_timestamp + 1) THEN
        RETURN cm_delta_reject(format('the in-commit timestamp %s does not follow %s, or lies ahead of the server''s clock',
            stamp, head.latest_in_commit_timestamp));
    END IF;
    IF coalesce((proposal ->> 'reported')::bigint, -1) > head.latest_version THEN
        RETURN cm_delta_reject('only ratified commits can be published');
    END IF;
    IF proposal ->> 'mode' NOT IN ('staged', 'inline') OR (proposal ->> 'mode' = 'inline' AND content IS NULL)
        OR coalesce(head.commit_policy, '') IN ('put_if_absent', 'switching') THEN
        RETURN cm_delta_reject('a proposal is staged, or inline with its content');
    END IF;
    IF coalesce(proposal ->> 'txn_id', '') = '' OR (proposal ->> 'file_size')::bigint < 0
        OR proposal ->> 'file_name' !~ ('^' || lpad(next::text, 20, '0') || '[.][0-9a-fA-F]{{8}}(-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}[.]json$')
    THEN
        RETURN cm_delta_reject('the file name, the size or the txnId is not that of a proposal');
    END IF;
    IF content IS NOT NULL THEN
        IF length(content) <> (proposal ->> 'file_size')::bigint
            OR encode(sha256(content), 'hex') <> coalesce(proposal ->> 'sha256', '') THEN
            RETURN cm_delta_reject('the content does not have the size and the SHA-256 of the proposal');
        END IF;
        IF position(decode('0d', 'hex') IN content) > 0 THEN
            RETURN cm_delta_reject('the content is not a commit: readers end a line at a carriage return, too');
        END IF;
        BEGIN
            info := split_part(convert_from(content, 'UTF8'), E'\n', 1)::jsonb -> 'commitInfo';
            needed := cm_delta_required(content);
        EXCEPTION WHEN data_exception OR invalid_text_representation OR character_not_in_repertoire THEN
            RETURN cm_delta_reject('the content is not a commit');
        END;
        IF needed IS NULL THEN
            RETURN cm_delta_reject('the content is not a commit: it has more than one metaData or protocol action');
        END IF;
        IF info ->> 'txnId' IS DISTINCT FROM proposal ->> 'txn_id' OR (info ->> 'inCommitTimestamp')::bigint IS DISTINCT FROM stamp
        THEN
            RETURN cm_delta_reject('the content has another txnId or in-commit timestamp than the proposal');
        END IF;
    END IF;
    BEGIN
        IF NOT cm_delta_are_texts(coalesce(proposal ->> 'metrics', '{{}}')::jsonb, 'object')
            OR NOT cm_delta_are_texts(coalesce(proposal ->> 'tags', '{{}}')::jsonb, 'object') THEN
            RETURN cm_delta_reject('metrics and tags are JSON objects of texts');
        END IF;
    EXCEPTION WHEN data_exception THEN
        RETURN cm_delta_reject('metrics and tags are JSON objects of texts');
    END;
    name := cm_delta_name(head);
    what := format('The commit of version %s to %s', next, name);
    IF proposal ->> 'lease_token' IS NOT NULL THEN
        lost := cm_delta_lease_lost(what, of_table, name, (proposal ->> 'lease_token')::bigint);
        IF lost IS NOT NULL THEN
            RETURN lost;
        END IF;
    END IF;
    IF proposal ->> 'approval_id' IS NOT NULL THEN
        needed := ARRAY['own'];
    END IF;
    SELECT array_agg(p) INTO lacking FROM unnest(needed) AS p WHERE NOT cm_delta_holds(of_table, ARRAY[p]);
    IF lacking IS NOT NULL THEN
        RETURN cm_delta_refused(what, of_table, name, lacking);
    END IF;
    IF proposal ->> 'approval_id' IS NOT NULL THEN
        request := cm_delta_pending_request(proposal ->> 'approval_id');
        IF request.table_id IS DISTINCT FROM of_table OR request.txn_id IS DISTINCT FROM proposal ->> 'txn_id' THEN
            RETURN jsonb_build_object('answer', 'approval_closed', 'table_id', of_table);
        END IF;
    END IF;
    RETURN CASE WHEN with_rules THEN cm_delta_check_rules(of_table, proposal, content, what, name) END;
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_accept(of_table text, proposal jsonb, content bytea) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- The caller has examined the proposal and holds the lock of the row.
DECLARE
    head cm_delta_tables;
    next bigint := (proposal ->> 'version')::bigint;
    stamp bigint := (proposal ->> 'in_commit_timestamp')::bigint;
    reported bigint;
    first_cached bigint;
    kept bytea := CASE WHEN proposal ->> 'mode' = 'inline' OR (proposal ->> 'keeps_content')::boolean THEN content END;
    changes_data boolean := (proposal ->> 'data_change')::boolean;
    new_metadata text := proposal ->> 'metadata';
    new_protocol text := proposal ->> 'protocol';
    may_delete boolean := cm_delta_holds(of_table, ARRAY['maintain']);
    is_owner boolean := cm_delta_holds(of_table, ARRAY['own']);
BEGIN
    SELECT * INTO head FROM cm_delta_tables t WHERE t.table_id = of_table;
    IF kept IS NOT NULL AND proposal ->> 'mode' <> 'inline' AND length(kept) > {cached_bytes} THEN
        kept := NULL;
    END IF;
    IF content IS NOT NULL THEN
        SELECT coalesce(bool_or((a.name IN ('add', 'remove') AND a.changes_data) OR a.name = 'metaData'), false),
            coalesce(min(a.line) FILTER (WHERE a.name = 'metaData'), CASE WHEN bool_or(a.name = 'protocol') AND is_owner THEN new_metadata END),
            coalesce(min(a.line) FILTER (WHERE a.name = 'protocol'), CASE WHEN bool_or(a.name = 'metaData') THEN new_protocol END)
        INTO changes_data, new_metadata, new_protocol
        FROM cm_delta_actions(content) a;
    ELSIF NOT is_owner THEN
        -- Rules compare later commits with the definition: it is what the database has read, or what an owner states. This commit may
        -- change it, whatever the caller states.
        DELETE FROM cm_delta_definitions d WHERE d.table_id = of_table;
        UPDATE cm_delta_tables t SET etag = t.etag + 1 WHERE t.table_id = of_table;
        new_metadata := NULL;
        new_protocol := NULL;
    END IF;
    reported := greatest(head.published_version, coalesce((proposal ->> 'reported')::bigint, -1));
    first_cached := CASE
        WHEN kept IS NULL OR length(kept) > {cached_bytes} THEN next + 1
        WHEN next - {cached_commits} + 1 - head.content_from >= {slides_by} THEN next - {cached_commits} + 1
        ELSE head.content_from END;
    UPDATE cm_delta_tables t SET latest_version = next, latest_in_commit_timestamp = stamp, published_version = reported,
        latest_data_version = CASE WHEN changes_data THEN next ELSE head.latest_data_version END, content_from = first_cached
    WHERE t.table_id = of_table;
    INSERT INTO cm_delta_commits (table_id, version, mode, file_name, file_size, file_modification_time, txn_id,
        in_commit_timestamp, operation, data_change, data_version, ratified_ms, metrics, tags, content, sha256, engine_info,
        user_metadata, num_rows, num_files, size_bytes, principal)
    VALUES (of_table, next, proposal ->> 'mode', proposal ->> 'file_name', (proposal ->> 'file_size')::bigint,
        (proposal ->> 'file_modification_time')::bigint, proposal ->> 'txn_id', stamp, coalesce(proposal ->> 'operation', ''),
        changes_data, CASE WHEN changes_data THEN next ELSE head.latest_data_version END,
        cm_delta_now_ms(), coalesce(proposal ->> 'metrics', '{{}}'),
        coalesce(proposal ->> 'tags', '{{}}'), kept, proposal ->> 'sha256', proposal ->> 'engine_info',
        proposal ->> 'user_metadata', (proposal ->> 'num_rows')::bigint, (proposal ->> 'num_files')::bigint,
        (proposal ->> 'size_bytes')::bigint, session_user);
    IF proposal ->> 'approval_id' IS NOT NULL THEN
        PERFORM cm_delta_end_request(cm_delta_pending_request(proposal ->> 'approval_id'), 'committed', next, '');
    END IF;
    PERFORM cm_delta_append_entry(CASE next WHEN 0 THEN 'TABLE_CREATED' ELSE 'COMMIT' END, of_table, next, NULL, NULL, NULL);
    IF new_metadata IS NOT NULL OR new_protocol IS NOT NULL THEN
        INSERT INTO cm_delta_definitions AS d (table_id, metadata, protocol, version, in_commit_timestamp)
        VALUES (of_table, new_metadata, new_protocol, next, stamp)
        ON CONFLICT (table_id) DO UPDATE SET metadata = coalesce(excluded.metadata, d.metadata),
            protocol = coalesce(excluded.protocol, d.protocol), version = next, in_commit_timestamp = stamp;
        UPDATE cm_delta_tables t SET etag = t.etag + 1 WHERE t.table_id = of_table;
    END IF;
    IF first_cached - head.content_from > 1 OR reported > head.published_version THEN
        -- The content of an inline commit may be its only copy: a caller who may not delete files does not delete it either.
        UPDATE cm_delta_commits c SET content = NULL
        WHERE c.table_id = of_table AND c.version <= reported AND c.version < first_cached AND c.content IS NOT NULL
            AND (may_delete OR c.mode <> 'inline');
    END IF;
    -- The client wakes the readers after the commit: a transaction with a NOTIFY holds a lock of the whole server until it is
    -- durable.
    RETURN jsonb_build_object('answer', 'ratified', 'table_id', of_table, 'latest', next, 'published', reported,
        'has_waiters', cm_delta_has_waiters());
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_commit(tables text[], proposals jsonb[], contents bytea[]) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- Ratifies one proposal for each table, in ascending order of the ids, or none.
DECLARE
    answers jsonb := '[]';
    answer jsonb;
    is_refused boolean := false;
BEGIN
    IF tables IS NULL OR cardinality(tables) = 0 OR cardinality(tables) <> cardinality(proposals)
        OR cardinality(tables) <> cardinality(contents)
        OR tables IS DISTINCT FROM (SELECT array_agg(DISTINCT t COLLATE "C" ORDER BY t COLLATE "C") FROM unnest(tables) AS t) THEN
        RETURN jsonb_build_array(cm_delta_reject('each table has one proposal, in ascending order of the ids'));
    END IF;
    FOR place IN 1 .. cardinality(tables) LOOP
        answer := cm_delta_examine(tables[place], proposals[place], contents[place], true);
        answers := answers || coalesce(answer, 'null'::jsonb);
        is_refused := is_refused OR answer IS NOT NULL;
    END LOOP;
    IF is_refused THEN
        RETURN answers;
    END IF;
    answers := '[]';
    FOR place IN 1 .. cardinality(tables) LOOP
        answers := answers || cm_delta_accept(tables[place], proposals[place], contents[place]);
    END LOOP;
    RETURN answers;
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_publish(of_table text, up_to bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
DECLARE
    head cm_delta_tables;
BEGIN
    PERFORM cm_delta_require_read_committed();
    SELECT * INTO head FROM cm_delta_tables t WHERE t.table_id = of_table AND t.state = 'active' FOR UPDATE;
    IF NOT FOUND OR NOT cm_delta_holds(of_table, ARRAY['read']) THEN
        RETURN 'unknown_table';
    END IF;
    IF NOT cm_delta_holds(of_table, ARRAY['append', 'alter', 'maintain']) THEN
        RETURN 'refused';
    END IF;
    IF up_to > head.latest_version THEN
        RETURN 'not_ratified';
    END IF;
    IF up_to > head.published_version THEN
        UPDATE cm_delta_tables t SET published_version = up_to WHERE t.table_id = of_table;
        UPDATE cm_delta_commits c SET content = NULL
        WHERE c.table_id = of_table AND c.version <= up_to AND c.version < head.content_from AND c.content IS NOT NULL
            AND (c.mode <> 'inline' OR cm_delta_holds(of_table, ARRAY['maintain']));
    END IF;
    RETURN 'done';
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_record_refusal(action text, scope text, of_table text, reason text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    -- The readers of a table see no entry of a caller who may not read it.
    SELECT cm_delta_record(left(action, 100), left(scope, 500),
        CASE WHEN cm_delta_holds(of_table, ARRAY['read']) THEN of_table END, NULL, NULL, left(reason, 4000), 'refused')
$$;

DO $$
DECLARE
    entry record;
BEGIN
    -- Nobody but the owner has a right that was granted before, on a table or on a column of it.
    FOR entry IN
        SELECT DISTINCT c.oid::regclass AS object, c.relkind AS kind, a.grantee
        FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_attribute of_column ON of_column.attrelid = c.oid,
            LATERAL (SELECT * FROM pg_catalog.aclexplode(c.relacl) UNION ALL SELECT * FROM pg_catalog.aclexplode(of_column.attacl)) a
        WHERE c.relnamespace = '{schema}'::regnamespace AND c.relname LIKE 'cm\_delta\_%' AND a.grantee <> c.relowner
            AND c.relkind IN ('r', 'p', 'v', 'S')
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s', CASE WHEN entry.kind = 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, entry.object,
            CASE WHEN entry.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(entry.grantee)) END);
    END LOOP;
    -- Only these functions are for callers; the others trust what these have checked.
    FOR entry IN
        SELECT p.oid::regprocedure AS object, p.proname IN ('cm_delta_names', 'cm_delta_included', 'cm_delta_holds',
            'cm_delta_holds_all', 'cm_delta_commit', 'cm_delta_publish', 'cm_delta_record_refusal', 'cm_delta_place',
            'cm_delta_acquire_lease', 'cm_delta_renew_lease', 'cm_delta_release_lease', 'cm_delta_expire_lease',
            'cm_delta_pin_version', 'cm_delta_request_approval', 'cm_delta_close_approval') AS is_public
        FROM pg_catalog.pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname LIKE 'cm\_delta\_%'
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', entry.object);
        IF entry.is_public THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', entry.object);
        END IF;
    END LOOP;
END $$;

REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC;
GRANT USAGE ON SCHEMA {schema} TO PUBLIC;

ALTER TABLE {schema}.cm_delta_tables ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_commits ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_definitions ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_version_pins ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_maintenance_claims ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_clones ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_feed ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_feed_waiters ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_webhooks ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_webhook_failures ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.cm_delta_approvals ENABLE ROW LEVEL SECURITY;

CREATE POLICY cm_delta_read ON {schema}.cm_delta_tables FOR SELECT USING (
    (SELECT {schema}.cm_delta_holds_all(ARRAY['read'])) OR {schema}.cm_delta_holds(table_id, ARRAY['read']));
-- For SELECT ... FOR UPDATE, by which clients exclude each other; every change of a row is refused.
CREATE POLICY cm_delta_lock ON {schema}.cm_delta_tables FOR UPDATE
    USING ({schema}.cm_delta_holds(table_id, ARRAY['append', 'alter', 'maintain'])) WITH CHECK (false);
CREATE POLICY cm_delta_read ON {schema}.cm_delta_commits FOR SELECT USING (
    (SELECT {schema}.cm_delta_holds_all(ARRAY['read'])) OR {schema}.cm_delta_holds(table_id, ARRAY['read']));
CREATE POLICY cm_delta_read ON {schema}.cm_delta_definitions FOR SELECT USING (
    (SELECT {schema}.cm_delta_holds_all(ARRAY['read'])) OR {schema}.cm_delta_holds(table_id, ARRAY['read']));
CREATE POLICY cm_delta_read ON {schema}.cm_delta_clones FOR SELECT USING (
    {schema}.cm_delta_holds(clone_id, ARRAY['read']) OR {schema}.cm_delta_holds(source_id, ARRAY['read']));
CREATE POLICY cm_delta_read ON {schema}.cm_delta_version_pins FOR SELECT
    USING ({schema}.cm_delta_holds(table_id, ARRAY['read']));
CREATE POLICY cm_delta_read ON {schema}.cm_delta_maintenance_claims FOR SELECT
    USING ({schema}.cm_delta_holds(table_id, ARRAY['read']));
CREATE POLICY cm_delta_read ON {schema}.cm_delta_audit FOR SELECT
    USING (principal = session_user OR (SELECT {schema}.cm_delta_holds_all(ARRAY['own'])));
CREATE POLICY cm_delta_read ON {schema}.cm_delta_feed FOR SELECT USING (
    CASE WHEN table_id IS NULL THEN actor = session_user OR (SELECT {schema}.cm_delta_holds_all(ARRAY['own']))
        ELSE (SELECT {schema}.cm_delta_holds_all(ARRAY['read'])) OR {schema}.cm_delta_holds(table_id, ARRAY['read']) END);
-- Who requested an approval, who gives it, and who deletes files that no commit names: those of a pending request must stay.
CREATE POLICY cm_delta_read ON {schema}.cm_delta_approvals FOR SELECT
    USING (requested_by = session_user OR {schema}.cm_delta_holds(table_id, ARRAY['maintain']));
CREATE POLICY cm_delta_read ON {schema}.cm_delta_webhooks FOR SELECT USING ((SELECT {schema}.cm_delta_holds_all(ARRAY['own'])));
CREATE POLICY cm_delta_read ON {schema}.cm_delta_webhook_failures FOR SELECT
    USING ((SELECT {schema}.cm_delta_holds_all(ARRAY['own'])));

GRANT SELECT ON {readable} TO PUBLIC;
GRANT UPDATE (reserved_ms) ON {schema}.cm_delta_tables TO PUBLIC;
