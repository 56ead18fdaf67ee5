SET check_function_bodies = false;
CREATE FUNCTION public.cm_delta_accept(of_table text, proposal jsonb, content bytea) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
    IF kept IS NOT NULL AND proposal ->> 'mode' <> 'inline' AND length(kept) > 16384 THEN
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
        WHEN kept IS NULL OR length(kept) > 16384 THEN next + 1
        WHEN next - 64 + 1 - head.content_from >= 16 THEN next - 64 + 1
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
        cm_delta_now_ms(), coalesce(proposal ->> 'metrics', '{}'),
        coalesce(proposal ->> 'tags', '{}'), kept, proposal ->> 'sha256', proposal ->> 'engine_info',
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
ALTER FUNCTION public.cm_delta_accept(of_table text, proposal jsonb, content bytea) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_acquire_lease(of_table text, of_kind text, of_owner text, duration_ms bigint) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- The name of the owner is no secret: a lease belongs to the role that acquired it, too.
DECLARE
    head cm_delta_tables;
    held cm_delta_maintenance_claims;
    now_ms bigint;
    new_token bigint;
BEGIN
    IF of_kind = ANY (ARRAY['DATA_REORGANIZATION', 'DATA_CLEANUP', 'METADATA_CLEANUP', 'TABLE_PURGE', 'FEED_CLEANUP', 'CHECKPOINT', 'LOG_COMPACTION', 'VERSION_CHECKSUM', 'CREATION_PURGE']) AND length(of_owner) BETWEEN 1 AND 500 AND duration_ms > 0 THEN
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
ALTER FUNCTION public.cm_delta_acquire_lease(of_table text, of_kind text, of_owner text, duration_ms bigint) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_actions(content bytea) RETURNS TABLE(name text, given jsonb, line text, changes_data boolean, is_valid boolean)
    LANGUAGE sql IMMUTABLE
    AS $$
    -- The actions of a commit. Content that is not JSON in each line fails. Inlined, too: a query computes only the columns it uses.
    WITH lines AS (
        SELECT of_line.line, of_line.line::jsonb AS action FROM regexp_split_to_table(convert_from(content, 'UTF8'), E'\n') AS of_line(line)
        WHERE btrim(of_line.line, E' \t\r') <> ''
    )
    SELECT a.key, a.value, l.line, coalesce(a.value -> 'dataChange', 'true') <> 'false',
        (SELECT count(*) FROM jsonb_object_keys(l.action)) = 1 AND public.cm_delta_is_action(a.key, a.value)
    FROM lines l, jsonb_each(l.action) AS a
$$;
ALTER FUNCTION public.cm_delta_actions(content bytea) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_advances_row_ids(content bytea) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- Whether the domain of row tracking, if the commit has it once, states the highest row id of the files that the commit adds.
BEGIN
    RETURN (
        SELECT count(*) = 0 OR (count(*) = 1 AND bool_and(d.given -> 'removed' = 'false'
            AND (SELECT count(*) = 1 AND bool_and(cm_delta_is_natural(k.value)) FROM jsonb_each((d.given ->> 'configuration')::jsonb) k)
            AND coalesce((d.given ->> 'configuration')::jsonb -> 'rowIdHighWaterMark', (d.given ->> 'configuration')::jsonb -> 'highWaterMark')
                = (SELECT to_jsonb(max((a.given ->> 'baseRowId')::numeric + ((a.given ->> 'stats')::jsonb ->> 'numRecords')::numeric - 1))
                    FROM cm_delta_actions(content) a WHERE a.name = 'add')) IS TRUE)
        FROM cm_delta_actions(content) d WHERE d.name = 'domainMetadata' AND d.given ->> 'domain' = 'delta.rowTracking'
    );
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;
ALTER FUNCTION public.cm_delta_advances_row_ids(content bytea) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_append_entry(of_kind text, of_table text, of_version bigint, of_scope text, of_actor text, facts jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- The entry gets its position later. An entry of a table is appended under the lock of its row.
BEGIN
    PERFORM FROM cm_delta_feed_counter f WHERE f.counter_id = 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the feed of the catalog has lost its counter; restore the database from a backup';
    END IF;
    INSERT INTO cm_delta_feed (kind, at_ms, table_id, version, scope, actor, details)
    VALUES (of_kind, cm_delta_now_ms(), of_table, of_version, of_scope, of_actor, facts::text);
END $$;
ALTER FUNCTION public.cm_delta_append_entry(of_kind text, of_table text, of_version bigint, of_scope text, of_actor text, facts jsonb) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_are_texts(given jsonb, of_type text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    -- Whether it is an object, or an array, and has texts only.
    SELECT CASE
        WHEN given IS NULL OR jsonb_typeof(given) <> of_type THEN false
        WHEN of_type = 'object' THEN NOT EXISTS (SELECT FROM jsonb_each(given) e WHERE jsonb_typeof(e.value) <> 'string')
        ELSE NOT EXISTS (SELECT FROM jsonb_array_elements(given) e(value) WHERE jsonb_typeof(e.value) <> 'string')
    END
$$;
ALTER FUNCTION public.cm_delta_are_texts(given jsonb, of_type text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_check_rules(of_table text, proposal jsonb, content bytea, what text, name text) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $_$
DECLARE
    rules text := cm_delta_rules_digest(of_table);
    violated jsonb;
    because text;
BEGIN
    IF NOT EXISTS (SELECT FROM cm_delta_rules_of(of_table)) THEN
        RETURN NULL;
    ELSIF content IS NOT NULL THEN
        SELECT coalesce(jsonb_agg(v.value), '[]') INTO violated
        FROM jsonb_array_elements(cm_delta_violations(of_table, proposal, content)) v
        WHERE NOT ((v.value ->> 'can_wait')::boolean AND EXISTS (
            SELECT FROM cm_delta_approvals a, jsonb_array_elements_text(a.rules::jsonb) r
            WHERE a.approval_id = proposal ->> 'approval_id' AND a.table_id = of_table AND r::jsonb = v.value -> 'demand'));
        IF violated = '[]' THEN
            RETURN NULL;
        END IF;
    ELSIF NOT cm_delta_holds(of_table, ARRAY['own']) THEN
        because := 'commit rules apply to the table, and the database examines only content that is sent along. Only owners commit '
            || 'more at a time; split the write';
        PERFORM cm_delta_record('commit', name, of_table, NULL, NULL, what || ': ' || because, 'refused');
        RETURN jsonb_build_object('answer', 'refused', 'table_id', of_table, 'what', what, 'reason', because, 'scope', name,
            'rule', 'commit_rules', 'ask', cm_delta_owners(of_table));
    ELSIF rules = proposal ->> 'checked_rules' THEN
        RETURN NULL;
    END IF;
    IF rules IS DISTINCT FROM proposal ->> 'checked_rules' THEN
        RETURN jsonb_build_object('answer', 'check_first', 'table_id', of_table, 'rules', rules);
    END IF;
    SELECT string_agg(v.value ->> 'text', '; ') INTO because FROM jsonb_array_elements(violated) v;
    PERFORM cm_delta_record('commit', name, of_table, NULL, NULL, what || ': ' || because, 'refused');
    RETURN jsonb_build_object('answer', 'refused', 'table_id', of_table, 'what', what, 'reason', because)
        || jsonb_build_object('scope', violated -> 0 -> 'scope', 'rule', violated -> 0 -> 'rule', 'set_by', violated -> 0 -> 'set_by',
            'ask', jsonb_path_query_array(violated, '$[*].ask ? (@ != null)'));
END $_$;
ALTER FUNCTION public.cm_delta_check_rules(of_table text, proposal jsonb, content bytea, what text, name text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_close_approval(of_request text, of_state text, because text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- Whether the request was pending, and is closed now.
DECLARE
    request cm_delta_approvals := cm_delta_pending_request(of_request);
BEGIN
    IF request.approval_id IS NOT NULL AND of_state IN ('rejected', 'conflicting') AND btrim(because) <> '' THEN
        PERFORM cm_delta_end_request(request, of_state, NULL, left(because, 4000));
        RETURN true;
    END IF;
    RETURN false;
END $$;
ALTER FUNCTION public.cm_delta_close_approval(of_request text, of_state text, because text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_column_change(wanted text, before jsonb, after jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- What becomes of one column, whose name is written as in an expression. NULL: it stays, or was not there.
DECLARE
    part text;
    old jsonb := jsonb_build_object('type', before);
    new jsonb := jsonb_build_object('type', after);
BEGIN
    FOR part IN SELECT coalesce(replace(m[1], '``', '`'), m[2]) FROM regexp_matches(wanted, '`((?:[^`]|``)+)`|([^.`]+)', 'g') AS m LOOP
        old := cm_delta_inner(old -> 'type', part);
        new := cm_delta_inner(new -> 'type', part);
    END LOOP;
    RETURN CASE
        WHEN old IS NULL THEN NULL
        WHEN new IS NULL THEN 'drops or renames the column ' || wanted
        WHEN cm_delta_physical_name(old) <> cm_delta_physical_name(new) THEN 'replaces the column ' || wanted || ' by another one of its name'
        WHEN NOT cm_delta_keeps(old -> 'type', new -> 'type') THEN 'changes the type of the column ' || wanted
    END;
END $$;
ALTER FUNCTION public.cm_delta_column_change(wanted text, before jsonb, after jsonb) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_commit(tables text[], proposals jsonb[], contents bytea[]) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
ALTER FUNCTION public.cm_delta_commit(tables text[], proposals jsonb[], contents bytea[]) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_commit_facts(of_table text, proposal jsonb, content bytea) RETURNS jsonb
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_nestloop TO 'off'
    AS $$
-- What rules are evaluated on: the commit, and what the catalog knows of the table before it.
DECLARE
    counted record;
    known record;
    gone numeric := cm_delta_rows(false, content);
    stated numeric := (proposal ->> 'num_rows')::numeric;
BEGIN
    SELECT count(*) FILTER (WHERE a.name = 'add') AS adds, count(*) FILTER (WHERE a.name = 'remove') AS removes,
        coalesce(bool_or(a.name = 'remove' AND a.changes_data), false) AS removes_data,
        coalesce(bool_or(a.name IN ('add', 'remove') AND a.changes_data), false) AS changes_data,
        bool_and(a.is_valid) AND count(*) FILTER (WHERE a.name = 'commitInfo') = 1 AS is_readable,
        (array_agg(a.given) FILTER (WHERE a.name = 'metaData'))[1] AS metadata,
        (array_agg(a.given) FILTER (WHERE a.name = 'commitInfo'))[1] AS info
    INTO counted FROM cm_delta_actions(content) a;
    SELECT c.num_rows, c.num_files INTO known FROM cm_delta_tables t
    JOIN cm_delta_commits c ON c.table_id = t.table_id AND c.version = t.latest_version AND c.num_files IS NOT NULL
    WHERE t.table_id = of_table;
    RETURN jsonb_build_object(
        'is_readable', counted.is_readable, 'adds', counted.adds, 'removes_data', counted.removes_data, 'after', counted.metadata, 'info', counted.info,
        'before', (SELECT d.metadata::jsonb -> 'metaData' FROM cm_delta_definitions d WHERE d.table_id = of_table),
        'rows', known.num_rows, 'files', known.num_files,
        'removed_rows', CASE
            WHEN counted.removes = 0 THEN 0
            WHEN gone IS NOT NULL THEN greatest(0, gone - coalesce(cm_delta_rows(true, content), 0))
            WHEN known.num_rows - stated IS NOT NULL
                AND (proposal ->> 'num_files')::numeric = known.num_files - counted.removes + counted.adds
                THEN greatest(0, known.num_rows - stated) END,
        'removed_files', CASE WHEN counted.changes_data AND counted.removes > 0 THEN (
            WITH files AS (SELECT a.name, a.given ->> 'path' AS path, cm_delta_file_key(a.given) AS key FROM cm_delta_actions(content) a)
            SELECT count(*) FROM files r WHERE r.name = 'remove' AND NOT EXISTS (
                SELECT FROM files a WHERE a.name = 'add' AND a.path = r.path AND NOT EXISTS (
                    SELECT FROM files o WHERE o.name = 'remove' AND o.key = a.key))) ELSE 0 END);
END $$;
ALTER FUNCTION public.cm_delta_commit_facts(of_table text, proposal jsonb, content bytea) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_constraint_key(metadata jsonb, name text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT k FROM jsonb_object_keys(metadata -> 'configuration') k
    WHERE lower(k) = lower('delta.constraints.' || name) AND starts_with(k, 'delta.constraints.') LIMIT 1
$$;
ALTER FUNCTION public.cm_delta_constraint_key(metadata jsonb, name text) OWNER TO lake_owner;
CREATE TABLE public.cm_delta_approvals (
    approval_id text NOT NULL,
    table_id text NOT NULL,
    state text NOT NULL,
    operation text NOT NULL,
    txn_id text NOT NULL,
    read_version bigint NOT NULL,
    what text NOT NULL,
    rules text DEFAULT '[]'::text NOT NULL,
    contacts text NOT NULL,
    requested_by text,
    requested_ms bigint NOT NULL,
    expires_ms bigint NOT NULL,
    app_id text,
    app_version bigint,
    intent text NOT NULL,
    mode text NOT NULL,
    file_name text NOT NULL,
    file_size bigint NOT NULL,
    sha256 text,
    content bytea,
    fingerprint text NOT NULL,
    decided_by text,
    decided_ms bigint,
    reason text NOT NULL,
    version bigint
);
ALTER TABLE public.cm_delta_approvals OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_end_request(request public.cm_delta_approvals, of_state text, of_version bigint, because text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- The caller holds the lock of the request.
DECLARE
    head cm_delta_tables;
BEGIN
    UPDATE cm_delta_approvals a SET state = of_state, decided_by = session_user, decided_ms = cm_delta_now_ms(), reason = because,
        version = of_version, content = NULL
    WHERE a.approval_id = request.approval_id;
    SELECT * INTO head FROM cm_delta_tables t WHERE t.table_id = request.table_id;
    PERFORM cm_delta_record(
        CASE of_state WHEN 'committed' THEN 'approve' WHEN 'rejected' THEN 'reject' ELSE 'close approval' END,
        cm_delta_name(head), request.table_id,
        'request ' || request.approval_id || ': pending',
        'request ' || request.approval_id || ': ' || of_state || coalesce(' as version ' || of_version, ''), because, 'done');
END $$;
ALTER FUNCTION public.cm_delta_end_request(request public.cm_delta_approvals, of_state text, of_version bigint, because text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_examine(of_table text, proposal jsonb, content bytea, with_rules boolean) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $_$
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
        OR (stamp > now_ms + 3600000 AND stamp <> head.latest_in_commit_timestamp + 1) THEN
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
        OR proposal ->> 'file_name' !~ ('^' || lpad(next::text, 20, '0') || '[.][0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}[.]json$')
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
        IF NOT cm_delta_are_texts(coalesce(proposal ->> 'metrics', '{}')::jsonb, 'object')
            OR NOT cm_delta_are_texts(coalesce(proposal ->> 'tags', '{}')::jsonb, 'object') THEN
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
END $_$;
ALTER FUNCTION public.cm_delta_examine(of_table text, proposal jsonb, content bytea, with_rules boolean) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_expire_lease(of_table text, of_owner text, because text) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
ALTER FUNCTION public.cm_delta_expire_lease(of_table text, of_owner text, because text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_file_key(given jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    -- Identifies a data file with its deletion vector. Inlined as cm_delta_is_natural.
    SELECT concat_ws(E'\n', given ->> 'path', given -> 'deletionVector' ->> 'storageType', given -> 'deletionVector' ->> 'pathOrInlineDv',
        given -> 'deletionVector' ->> 'offset')
$$;
ALTER FUNCTION public.cm_delta_file_key(given jsonb) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_has_waiters() RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT EXISTS (SELECT FROM cm_delta_feed_waiters w WHERE w.until_ms > cm_delta_now_ms())
$$;
ALTER FUNCTION public.cm_delta_has_waiters() OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_holds(of_table text, wanted text[]) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
ALTER FUNCTION public.cm_delta_holds(of_table text, wanted text[]) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_holds_all(wanted text[]) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT EXISTS (
        SELECT FROM cm_delta_grants g
        WHERE g.scope = '*' AND g.privilege = ANY (cm_delta_included(wanted)) AND g.grantee IN (SELECT cm_delta_names())
    )
$$;
ALTER FUNCTION public.cm_delta_holds_all(wanted text[]) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_included(wanted text[]) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    -- The privileges whose holders have one of the wanted ones.
    SELECT wanted || ARRAY['own']
        || CASE WHEN 'append' = ANY (wanted) THEN ARRAY['modify'] ELSE ARRAY[]::text[] END
        || CASE WHEN 'read' = ANY (wanted) THEN ARRAY['append', 'modify', 'alter', 'maintain'] ELSE ARRAY[]::text[] END
$$;
ALTER FUNCTION public.cm_delta_included(wanted text[]) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_inner(of_type jsonb, wanted text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    -- The field of a struct; also element of an array, key and value of a map.
    SELECT CASE of_type ->> 'type'
        WHEN 'struct' THEN (SELECT f.value FROM jsonb_array_elements(of_type -> 'fields') f
            WHERE lower(f.value ->> 'name') = lower(wanted) LIMIT 1)
        WHEN 'array' THEN CASE lower(wanted) WHEN 'element' THEN jsonb_build_object('name', wanted, 'type', of_type -> 'elementType') END
        WHEN 'map' THEN CASE lower(wanted) WHEN 'key' THEN jsonb_build_object('name', wanted, 'type', of_type -> 'keyType')
            WHEN 'value' THEN jsonb_build_object('name', wanted, 'type', of_type -> 'valueType') END
    END
$$;
ALTER FUNCTION public.cm_delta_inner(of_type jsonb, wanted text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_is_action(name text, given jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    -- Whether an action has the fields without which readers fail, and these and the optional ones have their types.
    SELECT coalesce(CASE
        WHEN jsonb_typeof(given) <> 'object' THEN false
        WHEN name = 'commitInfo' THEN true
        WHEN name = 'metaData' THEN jsonb_typeof(given -> 'schemaString') = 'string'
        WHEN name = 'protocol' THEN cm_delta_is_natural(given -> 'minReaderVersion') AND cm_delta_is_natural(given -> 'minWriterVersion')
        WHEN name = 'txn' THEN jsonb_typeof(given -> 'appId') = 'string' AND cm_delta_is_natural(given -> 'version')
        WHEN name = 'domainMetadata' THEN jsonb_typeof(given -> 'domain') = 'string'
            AND jsonb_typeof(given -> 'configuration') = 'string' AND jsonb_typeof(given -> 'removed') = 'boolean'
        WHEN name IN ('add', 'remove', 'cdc') THEN
            jsonb_typeof(given -> 'path') = 'string' AND given ->> 'path' <> '' AND jsonb_typeof(given -> 'dataChange') = 'boolean'
            AND (name = 'remove' OR (jsonb_typeof(given -> 'partitionValues') = 'object' AND cm_delta_is_natural(given -> 'size')))
            AND (name <> 'add' OR cm_delta_is_natural(given -> 'modificationTime'))
        ELSE false
    END AND NOT EXISTS (
        SELECT FROM jsonb_each(CASE WHEN name IN ('add', 'remove', 'cdc', 'txn') AND jsonb_typeof(given) = 'object' THEN given ELSE '{}' END) f
        WHERE f.value <> 'null' AND NOT CASE
            WHEN f.key IN ('baseRowId', 'defaultRowCommitVersion', 'deletionTimestamp', 'lastUpdated', 'modificationTime', 'size')
                THEN cm_delta_is_natural(f.value)
            WHEN f.key IN ('clusteringProvider', 'stats') THEN jsonb_typeof(f.value) = 'string'
            WHEN f.key = 'extendedFileMetadata' THEN jsonb_typeof(f.value) = 'boolean'
            WHEN f.key IN ('partitionValues', 'tags') THEN jsonb_typeof(f.value) = 'object' AND NOT EXISTS (
                SELECT FROM jsonb_each(CASE WHEN jsonb_typeof(f.value) = 'object' THEN f.value ELSE '{}' END) p
                WHERE jsonb_typeof(p.value) NOT IN ('string', 'null'))
            WHEN f.key = 'deletionVector' THEN coalesce(jsonb_typeof(f.value -> 'storageType') = 'string'
                AND jsonb_typeof(f.value -> 'pathOrInlineDv') = 'string' AND cm_delta_is_natural(f.value -> 'sizeInBytes')
                AND cm_delta_is_natural(f.value -> 'cardinality')
                AND (coalesce(f.value -> 'offset', 'null') = 'null' OR cm_delta_is_natural(f.value -> 'offset')), false)
            ELSE true
        END
    ), false)
$$;
ALTER FUNCTION public.cm_delta_is_action(name text, given jsonb) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_is_natural(given jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $_$
    -- Without a search path of its own, PostgreSQL inlines it in the functions that call it, which have one.
    SELECT coalesce(jsonb_typeof(given) = 'number' AND given::text ~ '^[0-9]{1,18}$', false)
$_$;
ALTER FUNCTION public.cm_delta_is_natural(given jsonb) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_keeps(before jsonb, after jsonb) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- Whether values of the later type have all that values of the earlier one have; a struct may get more fields.
DECLARE
    kind text := CASE WHEN before ->> 'type' = after ->> 'type' THEN before ->> 'type' END;
BEGIN
    RETURN CASE kind
        WHEN 'struct' THEN NOT EXISTS (
            SELECT FROM jsonb_array_elements(before -> 'fields') f, LATERAL cm_delta_inner(after, f.value ->> 'name') AS later
            WHERE later IS NULL OR cm_delta_physical_name(f.value) <> cm_delta_physical_name(later)
                OR NOT cm_delta_keeps(f.value -> 'type', later -> 'type'))
        WHEN 'array' THEN cm_delta_keeps(before -> 'elementType', after -> 'elementType')
        WHEN 'map' THEN cm_delta_keeps(before -> 'keyType', after -> 'keyType') AND cm_delta_keeps(before -> 'valueType', after -> 'valueType')
        ELSE before = after
    END;
END $$;
ALTER FUNCTION public.cm_delta_keeps(before jsonb, after jsonb) OWNER TO lake_owner;
CREATE TABLE public.cm_delta_maintenance_claims (
    table_id text NOT NULL,
    kind text NOT NULL,
    owner text NOT NULL,
    expires_ms bigint NOT NULL,
    token bigint DEFAULT 0 NOT NULL,
    acquired_ms bigint DEFAULT 0 NOT NULL,
    principal text
);
ALTER TABLE public.cm_delta_maintenance_claims OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_lease_holder(held public.cm_delta_maintenance_claims) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT jsonb_build_object('owner', held.owner, 'kind', held.kind, 'expires_ms', held.expires_ms)
$$;
ALTER FUNCTION public.cm_delta_lease_holder(held public.cm_delta_maintenance_claims) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_lease_lost(what text, of_table text, name text, of_token bigint) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
ALTER FUNCTION public.cm_delta_lease_lost(what text, of_table text, name text, of_token bigint) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_lease_text(held public.cm_delta_maintenance_claims) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT held.owner || ' for ' || held.kind || ', token ' || held.token
$$;
ALTER FUNCTION public.cm_delta_lease_text(held public.cm_delta_maintenance_claims) OWNER TO lake_owner;
CREATE TABLE public.cm_delta_tables (
    table_id text NOT NULL,
    catalog_name text NOT NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    location text NOT NULL,
    state text NOT NULL,
    latest_version bigint NOT NULL,
    published_version bigint NOT NULL,
    latest_data_version bigint NOT NULL,
    latest_in_commit_timestamp bigint NOT NULL,
    reserved_ms bigint NOT NULL,
    created_ms bigint,
    dropped_ms bigint,
    commit_policy text,
    barrier_after bigint,
    content_from bigint DEFAULT 0 NOT NULL,
    etag bigint DEFAULT 0 NOT NULL,
    is_external boolean DEFAULT false NOT NULL,
    lease_token bigint DEFAULT 0 NOT NULL,
    owner text
);
ALTER TABLE public.cm_delta_tables OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_locked_for_lease(of_table text) RETURNS public.cm_delta_tables
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- Locks the row of the table. A row of NULL: there is no such table that the caller may read.
DECLARE
    head cm_delta_tables;
BEGIN
    PERFORM cm_delta_require_read_committed();
    SELECT * INTO head FROM cm_delta_tables t WHERE t.table_id = of_table AND t.state IN ('active', 'purging')
        AND cm_delta_holds(of_table, ARRAY['read']) FOR UPDATE;
    RETURN head;
END $$;
ALTER FUNCTION public.cm_delta_locked_for_lease(of_table text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_metadata_violation(of_table text, kind text, arguments jsonb, before jsonb, after jsonb, adds bigint) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- What a commit does against a rule about metadata. after is NULL unless the commit changes metadata.
DECLARE
    missing text;
    dropped text;
    names text[];
BEGIN
    IF kind = 'required_constraints' THEN
        IF coalesce(after, before) IS NULL THEN
            RETURN 'is for a table whose constraints the catalog does not have';
        END IF;
        SELECT string_agg(c.name, ', '), string_agg(c.name, ', ') FILTER (WHERE cm_delta_constraint_key(before, c.name) IS NOT NULL)
        INTO missing, dropped
        FROM jsonb_array_elements_text(arguments -> 'constraints') c(name)
        WHERE cm_delta_constraint_key(coalesce(after, before), c.name) IS NULL;
        RETURN CASE WHEN dropped IS NOT NULL THEN 'drops the CHECK constraint ' || dropped
            WHEN missing IS NOT NULL AND adds > 0 THEN 'writes to a table without the CHECK constraint ' || missing END;
    ELSIF after IS NULL THEN
        RETURN NULL;
    ELSIF kind = 'schema_change' THEN
        names := ARRAY(SELECT jsonb_array_elements_text(arguments -> 'principals'));
        IF (CASE WHEN arguments ? 'principals' THEN names && ARRAY(SELECT cm_delta_names()) ELSE cm_delta_holds(of_table, ARRAY['own']) END)
            OR (before IS NOT NULL AND coalesce(before -> 'partitionColumns', '[]') = coalesce(after -> 'partitionColumns', '[]')
                AND cm_delta_without_marks((before ->> 'schemaString')::jsonb) = cm_delta_without_marks((after ->> 'schemaString')::jsonb))
        THEN
            RETURN NULL;
        END IF;
        RETURN 'changes the schema as ' || session_user || ', and not as '
            || CASE WHEN arguments ? 'principals' THEN array_to_string(names, ' or ') ELSE 'an owner of the table' END;
    ELSIF before IS NULL THEN
        RETURN 'changes the metadata of a table whose columns and properties the catalog does not have';
    ELSIF kind = 'protected_columns' THEN
        RETURN (SELECT string_agg(change, ', ') FROM jsonb_array_elements_text(arguments -> 'columns') c,
            LATERAL cm_delta_column_change(c, (before ->> 'schemaString')::jsonb, (after ->> 'schemaString')::jsonb) AS change);
    END IF;
    RETURN (
        SELECT 'changes the property ' || string_agg(p.key, ', ' ORDER BY p.key) FROM (
            SELECT jsonb_object_keys(coalesce(before -> 'configuration', '{}') || coalesce(after -> 'configuration', '{}')) AS key
        ) p
        WHERE lower(p.key) IN (SELECT lower(w) FROM jsonb_array_elements_text(arguments -> 'properties') w)
            AND before -> 'configuration' ->> p.key IS DISTINCT FROM after -> 'configuration' ->> p.key);
END $$;
ALTER FUNCTION public.cm_delta_metadata_violation(of_table text, kind text, arguments jsonb, before jsonb, after jsonb, adds bigint) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_name(head public.cm_delta_tables) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT head.catalog_name || '.' || head.schema_name || '.' || head.table_name
$$;
ALTER FUNCTION public.cm_delta_name(head public.cm_delta_tables) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_names() RETURNS SETOF text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    WITH RECURSIVE names(name) AS (
        SELECT session_user::text
        UNION SELECT m.role FROM cm_delta_role_members m JOIN names n ON m.member = n.name
    )
    SELECT name FROM names UNION SELECT 'public'
$$;
ALTER FUNCTION public.cm_delta_names() OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_now_ms() RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;
ALTER FUNCTION public.cm_delta_now_ms() OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_over_limit(arguments jsonb, counted text, removed numeric, total numeric) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT CASE
        WHEN removed = 0 THEN NULL
        WHEN removed IS NULL THEN 'removes files whose number of ' || counted || ' the log does not have'
        WHEN arguments ? counted THEN CASE WHEN removed > (arguments ->> counted)::numeric
            THEN format('removes %s %s, more than %s', removed, counted, arguments ->> counted) END
        WHEN total IS NULL THEN format('removes %s %s of a table whose number of %s the catalog does not have', removed, counted, counted)
        WHEN removed::float8 > (arguments ->> 'fraction')::float8 * total::float8
            THEN format('removes %s of %s %s, more than the fraction %s', removed, total, counted, arguments ->> 'fraction')
    END
$$;
ALTER FUNCTION public.cm_delta_over_limit(arguments jsonb, counted text, removed numeric, total numeric) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_owners(of_table text) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT coalesce(jsonb_agg(DISTINCT o.who), '[]') FROM (
        SELECT t.owner AS who FROM cm_delta_tables t WHERE t.table_id = of_table AND t.owner IS NOT NULL
        UNION SELECT g.grantee FROM cm_delta_grants g JOIN cm_delta_tables t ON t.table_id = of_table
        WHERE g.privilege = 'own'
            AND g.scope IN ('*', t.catalog_name, t.catalog_name || '.' || t.schema_name, 'id:' || t.table_id)
    ) AS o
$$;
ALTER FUNCTION public.cm_delta_owners(of_table text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_pending_request(of_request text) RETURNS public.cm_delta_approvals
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- Locks the request. A row of NULL: the caller does not own its table, or the request is not pending.
DECLARE
    request cm_delta_approvals;
BEGIN
    PERFORM cm_delta_require_read_committed();
    SELECT * INTO request FROM cm_delta_approvals a WHERE a.approval_id = of_request AND cm_delta_holds(a.table_id, ARRAY['own'])
    FOR UPDATE;
    IF request.state = 'pending' AND request.expires_ms > cm_delta_now_ms() THEN
        RETURN request;
    END IF;
    RETURN NULL;
END $$;
ALTER FUNCTION public.cm_delta_pending_request(of_request text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_physical_name(of_field jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT lower(coalesce(of_field -> 'metadata' ->> 'delta.columnMapping.physicalName', of_field ->> 'name'))
$$;
ALTER FUNCTION public.cm_delta_physical_name(of_field jsonb) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_pin_version(of_table text, of_version bigint, of_owner text, is_raised boolean) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
    DELETE FROM cm_delta_version_pins p WHERE p.pinned_ms < now_ms - 2592000000;
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
ALTER FUNCTION public.cm_delta_pin_version(of_table text, of_version bigint, of_owner text, is_raised boolean) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_place() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
        FROM (SELECT u.entry_id FROM cm_delta_feed u WHERE u.position IS NULL ORDER BY u.entry_id LIMIT 10000) o
    ) n
    WHERE f.entry_id = n.entry_id;
    GET DIAGNOSTICS placed = ROW_COUNT;
    UPDATE cm_delta_feed_counter f SET position = latest + placed WHERE f.counter_id = 1;
    RETURN placed = 10000;
END $$;
ALTER FUNCTION public.cm_delta_place() OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_publish(of_table text, up_to bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
ALTER FUNCTION public.cm_delta_publish(of_table text, up_to bigint) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_record(of_action text, of_scope text, of_table text, before text, after text, because text, of_outcome text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- One row of the audit, with its entry of the feed.
BEGIN
    PERFORM cm_delta_append_entry(
        CASE WHEN of_outcome = 'refused' THEN 'PROPOSAL_REFUSED' WHEN of_action LIKE '% lease' THEN 'LEASE_CHANGED'
            ELSE 'POLICY_CHANGED' END, of_table, NULL, of_scope, session_user,
        jsonb_strip_nulls(jsonb_build_object('action', of_action, 'before', before, 'after', after, 'reason', nullif(because, ''))));
    INSERT INTO cm_delta_audit (at_ms, principal, action, scope, table_id, state_before, state_after, reason, outcome)
    VALUES (cm_delta_now_ms(), session_user, of_action, of_scope, of_table, before, after, because, of_outcome);
    IF cm_delta_has_waiters() THEN
        PERFORM pg_notify('cm_delta_feed', '');
    END IF;
END $$;
ALTER FUNCTION public.cm_delta_record(of_action text, of_scope text, of_table text, before text, after text, because text, of_outcome text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_record_refusal(action text, scope text, of_table text, reason text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    -- The readers of a table see no entry of a caller who may not read it.
    SELECT cm_delta_record(left(action, 100), left(scope, 500),
        CASE WHEN cm_delta_holds(of_table, ARRAY['read']) THEN of_table END, NULL, NULL, left(reason, 4000), 'refused')
$$;
ALTER FUNCTION public.cm_delta_record_refusal(action text, scope text, of_table text, reason text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_refused(what text, of_table text, name text, lacking text[]) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    because text := 'the principal ' || session_user || ' does not have the privilege'
        || CASE WHEN cardinality(lacking) > 1 THEN 's ' ELSE ' ' END || array_to_string(lacking, ' and ')
        || ' on ' || name;
BEGIN
    PERFORM cm_delta_record('commit', name, of_table, NULL, NULL, what || ': ' || because, 'refused');
    RETURN jsonb_build_object('answer', 'refused', 'table_id', of_table, 'what', what, 'reason', because, 'scope', name,
        'ask', cm_delta_owners(of_table));
END $$;
ALTER FUNCTION public.cm_delta_refused(what text, of_table text, name text, lacking text[]) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_reject(because text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT jsonb_build_object('answer', 'rejected', 'reason', because)
$$;
ALTER FUNCTION public.cm_delta_reject(because text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_release_lease(of_table text, of_owner text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
ALTER FUNCTION public.cm_delta_release_lease(of_table text, of_owner text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_renew_lease(of_table text, of_token bigint, duration_ms bigint) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
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
ALTER FUNCTION public.cm_delta_renew_lease(of_table text, of_token bigint, duration_ms bigint) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_request_approval(of_table text, proposal jsonb, content bytea, request jsonb) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $_$
DECLARE
    answer jsonb;
    violated jsonb;
    named jsonb;
    found jsonb;
    known text;
    head cm_delta_tables;
    now_ms bigint := cm_delta_now_ms();
    new_id text := left(replace(gen_random_uuid()::text, '-', ''), 12);
    duration_ms bigint := (request ->> 'duration_ms')::bigint;
BEGIN
    answer := cm_delta_examine(of_table, proposal, content, false);
    IF answer IS NOT NULL THEN
        RETURN answer;
    END IF;
    IF content IS NULL THEN
        RETURN cm_delta_reject('a commit that waits for an approval is sent with its content');
    END IF;
    IF duration_ms BETWEEN 1 AND 10 * 365 * 24 * 3600000::bigint AND length(request ->> 'fingerprint') = 64
        AND length(request ->> 'intent') BETWEEN 2 AND 16777216
        AND cm_delta_are_texts(request -> 'what', 'array') AND cm_delta_are_texts(request -> 'rules', 'array')
        AND cm_delta_are_texts(request -> 'contacts', 'array') AND (request ->> 'app_id' IS NULL) = (request ->> 'app_version' IS NULL)
    THEN
        NULL;
    ELSE
        RETURN cm_delta_reject('a request has a fingerprint, an intent, a duration of at most ten years, and texts');
    END IF;
    BEGIN
        violated := cm_delta_violations(of_table, proposal, content);
        SELECT coalesce(jsonb_agg(r.value), '[]') INTO named FROM jsonb_array_elements(request -> 'rules') r
        WHERE (r.value #>> '{}')::jsonb IN (SELECT v.value -> 'demand' FROM jsonb_array_elements(violated) v);
    EXCEPTION WHEN data_exception THEN
        RETURN cm_delta_reject('rules are JSON');
    END;
    IF violated = '[]' OR violated @? '$[*] ? (@.can_wait == false)' THEN
        RETURN cm_delta_reject('a commit waits if it violates rules which an approval lets pass, and no other rule');
    END IF;
    SELECT jsonb_agg(v.value -> 'text') INTO found FROM jsonb_array_elements(violated) v;
    SELECT a.approval_id INTO known FROM cm_delta_approvals a
    WHERE a.table_id = of_table AND a.state = 'pending' AND a.expires_ms > now_ms AND a.requested_by = session_user
        AND (a.file_name = proposal ->> 'file_name'
            OR (a.app_id = request ->> 'app_id' AND a.app_version = (request ->> 'app_version')::bigint))
    LIMIT 1;
    IF known IS NOT NULL THEN
        RETURN jsonb_build_object('answer', 'kept', 'approval_id', known);
    END IF;
    INSERT INTO cm_delta_approvals (approval_id, table_id, state, operation, txn_id, read_version, what, rules, contacts,
        requested_by, requested_ms, expires_ms, app_id, app_version, intent, mode, file_name, file_size, sha256, content,
        fingerprint, reason)
    VALUES (new_id, of_table, 'pending', coalesce(proposal ->> 'operation', ''), proposal ->> 'txn_id',
        (proposal ->> 'version')::bigint - 1, found::text, named::text, (request -> 'contacts')::text,
        session_user, now_ms, now_ms + duration_ms, request ->> 'app_id', (request ->> 'app_version')::bigint, request ->> 'intent',
        proposal ->> 'mode', proposal ->> 'file_name', (proposal ->> 'file_size')::bigint, proposal ->> 'sha256',
        CASE WHEN proposal ->> 'mode' = 'inline' THEN content END, request ->> 'fingerprint', '');
    SELECT * INTO head FROM cm_delta_tables t WHERE t.table_id = of_table;
    PERFORM cm_delta_record('request approval', cm_delta_name(head), of_table,
        NULL, 'request ' || new_id,
        (SELECT coalesce(string_agg(w, '; '), '') FROM jsonb_array_elements_text(found) w), 'done');
    RETURN jsonb_build_object('answer', 'kept', 'approval_id', new_id);
END $_$;
ALTER FUNCTION public.cm_delta_request_approval(of_table text, proposal jsonb, content bytea, request jsonb) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_require_read_committed() RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- A transaction with another isolation level reads the grants and rules that there were when it began, e.g. before a revocation.
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the catalog cannot be changed at the isolation level %, which does not read the latest grants and rules',
            current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state', HINT = 'Use the isolation level READ COMMITTED.';
    END IF;
END $$;
ALTER FUNCTION public.cm_delta_require_read_committed() OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_required(content bytea) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    -- The privileges that a commit with this content requires. One that is not a valid action in each line requires all. NULL: it is
    -- not a commit, because it has two actions of which readers use one.
    WITH found AS (
        SELECT
            bool_or(name = 'cdc' OR (name = 'remove' AND changes_data)
                OR (name = 'add' AND changes_data AND jsonb_typeof(given -> 'deletionVector') = 'object')) AS modifies,
            bool_or(name IN ('metaData', 'protocol')
                OR (name = 'domainMetadata' AND given ->> 'domain' IS DISTINCT FROM 'delta.rowTracking'))
                OR NOT cm_delta_advances_row_ids(content) AS alters,
            bool_or(name IN ('add', 'remove') AND NOT changes_data) AS rearranges,
            bool_or(name = 'add' AND changes_data) AS adds,
            bool_and(is_valid) AS is_valid,
            count(*) FILTER (WHERE name = 'metaData') > 1 OR count(*) FILTER (WHERE name = 'protocol') > 1 AS is_ambiguous
        FROM cm_delta_actions(content)
    )
    SELECT CASE
        WHEN is_ambiguous THEN NULL
        WHEN is_valid THEN array_remove(ARRAY[
            CASE WHEN modifies THEN 'modify' END,
            CASE WHEN alters THEN 'alter' END,
            CASE WHEN rearranges AND NOT modifies THEN 'maintain' END,
            CASE WHEN (adds AND NOT modifies) OR NOT (modifies OR alters OR rearranges) THEN 'append' END
        ], NULL)
        ELSE ARRAY['modify', 'alter']
    END FROM found
$$;
ALTER FUNCTION public.cm_delta_required(content bytea) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_rows(added boolean, content bytea) RETURNS numeric
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET enable_nestloop TO 'off'
    AS $$
-- Rows of the files that a commit adds, or removes, as its writer states them. NULL: a file does not state them. Readers disagree
-- whether a file that one commit removes and adds is there afterwards: its rows count as removed.
DECLARE
    found numeric;
    is_known boolean;
BEGIN
    SELECT sum(s.records - s.hidden), coalesce(bool_and(s.records IS NOT NULL), true) INTO found, is_known FROM (
        SELECT CASE WHEN cm_delta_is_natural(f.stats -> 'numRecords') THEN (f.stats ->> 'numRecords')::numeric END AS records,
            CASE WHEN cm_delta_is_natural(f.hidden) THEN f.hidden::text::numeric ELSE 0 END AS hidden
        FROM (
            SELECT (a.given ->> 'stats')::jsonb AS stats, a.given -> 'deletionVector' -> 'cardinality' AS hidden
            FROM cm_delta_actions(content) a WHERE a.name = CASE WHEN added THEN 'add' ELSE 'remove' END
                AND NOT EXISTS (SELECT FROM cm_delta_actions(content) r
                    WHERE added AND r.name = 'remove' AND cm_delta_file_key(r.given) = cm_delta_file_key(a.given))
        ) f
    ) s;
    RETURN CASE WHEN is_known THEN coalesce(found, 0) END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
ALTER FUNCTION public.cm_delta_rows(added boolean, content bytea) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_rules_digest(of_table text) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    -- Changes when a commit rule that applies to the table is set, changed or removed.
    SELECT md5(coalesce(string_agg(r::text, E'\n' ORDER BY r.scope COLLATE "C", r.name COLLATE "C"), ''))
    FROM cm_delta_rules_of(of_table) r
$$;
ALTER FUNCTION public.cm_delta_rules_digest(of_table text) OWNER TO lake_owner;
CREATE TABLE public.cm_delta_commit_rules (
    scope text NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    arguments text NOT NULL,
    on_violation text NOT NULL,
    reason text NOT NULL,
    contact text NOT NULL,
    set_by text NOT NULL,
    set_ms bigint NOT NULL
);
ALTER TABLE public.cm_delta_commit_rules OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_rules_of(of_table text) RETURNS SETOF public.cm_delta_commit_rules
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT r.* FROM cm_delta_tables t JOIN cm_delta_commit_rules r
        ON r.scope IN (t.catalog_name, t.catalog_name || '.' || t.schema_name, cm_delta_name(t))
    WHERE t.table_id = of_table ORDER BY r.scope COLLATE "C", r.name COLLATE "C"
$$;
ALTER FUNCTION public.cm_delta_rules_of(of_table text) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_violation(of_table text, kind text, arguments jsonb, facts jsonb) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $_$
DECLARE
    note text := coalesce(facts -> 'info' ->> 'userMetadata', '');
    pattern text := arguments ->> 'pattern';
BEGIN
    IF NOT (facts -> 'is_readable')::boolean THEN
        RETURN 'has a content that the catalog cannot read';
    END IF;
    CASE kind
        WHEN 'append_only' THEN
            RETURN CASE WHEN (facts -> 'removes_data')::boolean OR coalesce((facts ->> 'removed_rows')::numeric, 1) > 0
                THEN 'removes or changes rows' END;
        WHEN 'max_removed_rows' THEN
            RETURN cm_delta_over_limit(arguments, 'rows', (facts ->> 'removed_rows')::numeric, (facts ->> 'rows')::numeric);
        WHEN 'max_removed_files' THEN
            RETURN cm_delta_over_limit(arguments, 'files', (facts ->> 'removed_files')::numeric, (facts ->> 'files')::numeric);
        WHEN 'required_tags' THEN
            RETURN (SELECT 'lacks the tag ' || string_agg(w, ', ') || ' in commitInfo, which context=CommitContext(tags=...) of the operation or of connect() sets' FROM jsonb_array_elements_text(arguments -> 'tags') w
                WHERE coalesce(facts -> 'info' -> 'tags' ->> w, '') = '');
        WHEN 'required_user_metadata' THEN
            IF pattern !~ E'^(?:[^\\\\([{]|\\\\[dDsSwWntr]|\\\\[^a-zA-Z0-9]|\\((?!\\?)|\\(\\?:|\\{[0-9]+(?:,[0-9]*)?\\}|\\[\\^?\\]?(?:[^]\\\\[]|\\\\[dswntr]|\\\\[^a-zA-Z0-9])*\\])*$' THEN
                RETURN 'cannot be compared with the pattern of userMetadata, which PostgreSQL does not evaluate as Python does';
            END IF;
            RETURN CASE WHEN note COLLATE "C" !~ ('^(?:' || pattern || ')$') THEN 'has the userMetadata ' || quote_literal(note) || ', and the pattern is '
                || quote_literal(pattern) || ', which context=CommitContext(user_metadata=...) of the operation or of connect() sets' END;
        WHEN 'required_constraints', 'schema_change', 'protected_columns', 'protected_properties' THEN
            RETURN cm_delta_metadata_violation(of_table, kind, arguments, nullif(facts -> 'before', 'null'), nullif(facts -> 'after', 'null'),
                (facts ->> 'adds')::bigint);
        ELSE
            RETURN 'is not examined by the database, which does not know the kind of the rule';
    END CASE;
EXCEPTION WHEN data_exception THEN
    RETURN 'cannot be examined by the database (' || SQLERRM || ')';
END $_$;
ALTER FUNCTION public.cm_delta_violation(of_table text, kind text, arguments jsonb, facts jsonb) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_violations(of_table text, proposal jsonb, content bytea) RETURNS jsonb
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- What the commit does against the rules of its table: an array, empty if nothing. The content is a commit.
DECLARE
    rule cm_delta_commit_rules;
    facts jsonb;
    done text;
    found jsonb := '[]';
BEGIN
    FOR rule IN SELECT * FROM cm_delta_rules_of(of_table) LOOP
        facts := coalesce(facts, cm_delta_commit_facts(of_table, proposal, content));
        done := cm_delta_violation(of_table, rule.kind, rule.arguments::jsonb, facts);
        IF done IS NOT NULL THEN
            found := found || jsonb_build_object(
                'rule', rule.name || coalesce(' (' || nullif(rule.kind, rule.name) || ')', ''), 'scope', rule.scope, 'does', done, 'reason', rule.reason,
                'set_by', nullif(rule.set_by, ''), 'ask', coalesce(nullif(rule.contact, ''), nullif(rule.set_by, '')),
                'can_wait', rule.on_violation = 'approval',
                'demand', jsonb_build_object('scope', rule.scope, 'name', rule.name, 'kind', rule.kind, 'arguments', rule.arguments::jsonb),
                'text', format('it %s, which the rule %L of %s%s does not permit%s', done, rule.name, rule.scope,
                    coalesce(' (' || nullif(concat_ws(', ', nullif(rule.kind, rule.name), 'set by ' || nullif(rule.set_by, '')), '') || ')', ''),
                    CASE WHEN rule.reason <> '' THEN ': ' || rule.reason ELSE '' END));
        END IF;
    END LOOP;
    RETURN found;
END $$;
ALTER FUNCTION public.cm_delta_violations(of_table text, proposal jsonb, content bytea) OWNER TO lake_owner;
CREATE FUNCTION public.cm_delta_without_marks(given jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
-- A schema without the metadata that writes of identity columns change.
BEGIN
    RETURN CASE jsonb_typeof(given)
        WHEN 'object' THEN (SELECT coalesce(jsonb_object_agg(e.key, cm_delta_without_marks(e.value)), '{}')
            FROM jsonb_each(given) e WHERE e.key <> 'delta.identity.highWaterMark')
        WHEN 'array' THEN (SELECT coalesce(jsonb_agg(cm_delta_without_marks(e.value) ORDER BY e.place), '[]')
            FROM jsonb_array_elements(given) WITH ORDINALITY AS e(value, place))
        ELSE given
    END;
END $$;
ALTER FUNCTION public.cm_delta_without_marks(given jsonb) OWNER TO lake_owner;
CREATE TABLE public.cm_delta_active_checks (
    scope text NOT NULL,
    check_name text NOT NULL
);
ALTER TABLE public.cm_delta_active_checks OWNER TO lake_owner;
CREATE TABLE public.cm_delta_alembic_version (
    version_num character varying(32) NOT NULL
);
ALTER TABLE public.cm_delta_alembic_version OWNER TO lake_owner;
CREATE TABLE public.cm_delta_audit (
    entry_id bigint NOT NULL,
    at_ms bigint NOT NULL,
    principal text,
    action text NOT NULL,
    scope text NOT NULL,
    table_id text,
    state_before text,
    state_after text,
    reason text NOT NULL,
    outcome text NOT NULL
);
ALTER TABLE public.cm_delta_audit OWNER TO lake_owner;
CREATE SEQUENCE public.cm_delta_audit_entry_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.cm_delta_audit_entry_id_seq OWNER TO lake_owner;
ALTER SEQUENCE public.cm_delta_audit_entry_id_seq OWNED BY public.cm_delta_audit.entry_id;
CREATE TABLE public.cm_delta_catalog (
    row_id integer NOT NULL,
    catalog_id text NOT NULL
);
ALTER TABLE public.cm_delta_catalog OWNER TO lake_owner;
CREATE TABLE public.cm_delta_clones (
    clone_id text NOT NULL,
    source_id text NOT NULL
);
ALTER TABLE public.cm_delta_clones OWNER TO lake_owner;
CREATE TABLE public.cm_delta_commit_policies (
    scope text NOT NULL,
    policy text NOT NULL
);
ALTER TABLE public.cm_delta_commit_policies OWNER TO lake_owner;
CREATE TABLE public.cm_delta_commits (
    table_id text NOT NULL,
    version bigint NOT NULL,
    mode text NOT NULL,
    file_name text NOT NULL,
    file_size bigint NOT NULL,
    file_modification_time bigint NOT NULL,
    txn_id text NOT NULL,
    in_commit_timestamp bigint NOT NULL,
    operation text NOT NULL,
    data_change boolean NOT NULL,
    data_version bigint NOT NULL,
    ratified_ms bigint NOT NULL,
    metrics text NOT NULL,
    tags text NOT NULL,
    content bytea,
    sha256 text,
    engine_info text,
    user_metadata text,
    num_rows bigint,
    num_files bigint,
    size_bytes bigint,
    principal text
);
ALTER TABLE public.cm_delta_commits OWNER TO lake_owner;
CREATE TABLE public.cm_delta_definitions (
    table_id text NOT NULL,
    metadata text,
    protocol text,
    version bigint NOT NULL,
    in_commit_timestamp bigint NOT NULL
);
ALTER TABLE public.cm_delta_definitions OWNER TO lake_owner;
CREATE TABLE public.cm_delta_feed (
    entry_id bigint NOT NULL,
    "position" bigint,
    kind text NOT NULL,
    at_ms bigint NOT NULL,
    table_id text,
    version bigint,
    scope text,
    actor text,
    details text
);
ALTER TABLE public.cm_delta_feed OWNER TO lake_owner;
CREATE TABLE public.cm_delta_feed_counter (
    counter_id integer NOT NULL,
    "position" bigint NOT NULL,
    deleted_up_to bigint DEFAULT 0 NOT NULL
);
ALTER TABLE public.cm_delta_feed_counter OWNER TO lake_owner;
CREATE SEQUENCE public.cm_delta_feed_entry_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.cm_delta_feed_entry_id_seq OWNER TO lake_owner;
ALTER SEQUENCE public.cm_delta_feed_entry_id_seq OWNED BY public.cm_delta_feed.entry_id;
CREATE TABLE public.cm_delta_feed_waiters (
    waiter_id text NOT NULL,
    until_ms bigint NOT NULL
);
ALTER TABLE public.cm_delta_feed_waiters OWNER TO lake_owner;
CREATE TABLE public.cm_delta_grants (
    grantee text NOT NULL,
    scope text NOT NULL,
    privilege text NOT NULL,
    granted_by text,
    granted_ms bigint NOT NULL
);
ALTER TABLE public.cm_delta_grants OWNER TO lake_owner;
CREATE TABLE public.cm_delta_maintenance_rules (
    scope text NOT NULL,
    kind text NOT NULL,
    allowed boolean NOT NULL,
    reason text NOT NULL,
    principals text DEFAULT '[]'::text NOT NULL,
    windows text DEFAULT '[]'::text NOT NULL,
    min_retention_ms bigint,
    max_files bigint,
    max_bytes bigint,
    set_by text,
    set_ms bigint
);
ALTER TABLE public.cm_delta_maintenance_rules OWNER TO lake_owner;
CREATE TABLE public.cm_delta_registered_paths (
    catalog_name text NOT NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    location text NOT NULL
);
ALTER TABLE public.cm_delta_registered_paths OWNER TO lake_owner;
CREATE TABLE public.cm_delta_role_members (
    member text NOT NULL,
    role text NOT NULL
);
ALTER TABLE public.cm_delta_role_members OWNER TO lake_owner;
CREATE TABLE public.cm_delta_roles (
    role text NOT NULL
);
ALTER TABLE public.cm_delta_roles OWNER TO lake_owner;
CREATE TABLE public.cm_delta_version_pins (
    owner text NOT NULL,
    table_id text NOT NULL,
    version bigint NOT NULL,
    pinned_ms bigint NOT NULL,
    principal text DEFAULT ''::text NOT NULL
);
ALTER TABLE public.cm_delta_version_pins OWNER TO lake_owner;
CREATE TABLE public.cm_delta_webhook_failures (
    name text NOT NULL,
    "position" bigint NOT NULL,
    body text NOT NULL,
    error text NOT NULL,
    failed_ms bigint NOT NULL
);
ALTER TABLE public.cm_delta_webhook_failures OWNER TO lake_owner;
CREATE TABLE public.cm_delta_webhooks (
    name text NOT NULL,
    url text NOT NULL,
    secret text NOT NULL,
    kinds text NOT NULL,
    scopes text NOT NULL,
    "position" bigint NOT NULL,
    created_ms bigint NOT NULL,
    leased_by text,
    leased_until_ms bigint DEFAULT 0 NOT NULL
);
ALTER TABLE public.cm_delta_webhooks OWNER TO lake_owner;
ALTER TABLE ONLY public.cm_delta_audit ALTER COLUMN entry_id SET DEFAULT nextval('public.cm_delta_audit_entry_id_seq'::regclass);
ALTER TABLE ONLY public.cm_delta_feed ALTER COLUMN entry_id SET DEFAULT nextval('public.cm_delta_feed_entry_id_seq'::regclass);
INSERT INTO public.cm_delta_active_checks VALUES ('*', 'grants');
INSERT INTO public.cm_delta_active_checks VALUES ('main.sales', 'commit_rules');
INSERT INTO public.cm_delta_active_checks VALUES ('main', 'commit_rules');
INSERT INTO public.cm_delta_alembic_version VALUES ('0013');
INSERT INTO public.cm_delta_approvals VALUES ('a098feade24f', '23cf7d37-460e-4800-93e7-d45e4247d9a2', 'pending', 'WRITE', 'd88ba7be-7bd8-42e6-9d12-908bb33ac466', 2, '["it removes or changes rows, which the rule ''keep'' of main.sales (append_only, set by lake_owner) does not permit: ask first"]', '["{\"scope\": \"main.sales\", \"name\": \"keep\", \"kind\": \"append_only\", \"arguments\": {}}"]', '["rosa"]', 'load_orders', 1795817745462, 1796422545462, 'job', 1, '{}', 'inline', '00000000000000000003.58ffcd51-8dbc-41b6-a488-0d973e34b9ca.json', 185, 'f0e14b0276bb1439ff5c9a8ac151abbf29816d1117cbf066eb2790543b614c72', '\x7b22636f6d6d6974496e666f223a207b2274786e4964223a202264383862613762652d376264382d343265362d396431322d393038626233336163343636222c2022696e436f6d6d697454696d657374616d70223a20313030332c20226f7065726174696f6e223a20225752495445227d7d0a7b2272656d6f7665223a207b2270617468223a202261222c2022646174614368616e6765223a20747275652c202264656c6574696f6e54696d657374616d70223a20317d7d0a', '4d8a54709270add3dfef45d706eafce0dc24eb35c4df3cee382529603b0f6a2f', NULL, NULL, '', NULL);
INSERT INTO public.cm_delta_audit VALUES (1, 1795817741370, 'lake_owner', 'create role', '*', NULL, NULL, 'pipelines', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (2, 1795817741370, 'lake_owner', 'add to role', '*', NULL, NULL, 'load_orders in pipelines', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (3, 1795817741942, 'lake_owner', 'create role', '*', NULL, NULL, 'everything', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (4, 1795817741942, 'lake_owner', 'add to role', '*', NULL, NULL, 'pipelines in everything', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (5, 1795817741942, 'lake_owner', 'add to role', '*', NULL, NULL, 'steward_rosa in everything', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (6, 1795817742072, 'lake_owner', 'grant', '*', NULL, NULL, 'own to lake_owner', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (7, 1795817742072, 'lake_owner', 'enable grants', '*', NULL, 'off', 'on', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (8, 1795817743064, 'lake_owner', 'grant', 'main.sales', NULL, NULL, 'modify to pipelines', 'nightly load', 'done');
INSERT INTO public.cm_delta_audit VALUES (9, 1795817743076, 'lake_owner', 'grant', 'main.staff.salaries', '9daeeb3f-dbda-4d4c-b008-588134ba905a', NULL, 'read to report_reader', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (10, 1795817743087, 'lake_owner', 'grant', 'main', NULL, NULL, 'read to public', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (11, 1795817743098, 'lake_owner', 'transfer ownership', 'main.sales.orders', '23cf7d37-460e-4800-93e7-d45e4247d9a2', 'lake_owner', 'everything', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (12, 1795817743113, 'lake_owner', 'transfer ownership', 'main.staff.salaries', '9daeeb3f-dbda-4d4c-b008-588134ba905a', 'lake_owner', 'steward_rosa', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (13, 1795817743120, 'lake_owner', 'set commit rule', 'main.sales', NULL, NULL, 'keep: append_only(), approval', 'ask first', 'done');
INSERT INTO public.cm_delta_audit VALUES (14, 1795817743137, 'lake_owner', 'set commit rule', 'main', NULL, NULL, 'columns: schema_change(principals=(''everything'', ''report_reader'', ''public'')), approval', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (15, 1795817743148, 'lake_owner', 'set maintenance rule', 'main', NULL, NULL, 'allow DATA_CLEANUP for pipelines and report_reader', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (16, 1795817745493, 'load_orders', 'request approval', 'main.sales.orders', '23cf7d37-460e-4800-93e7-d45e4247d9a2', NULL, 'request a098feade24f', 'it removes or changes rows, which the rule ''keep'' of main.sales (append_only, set by lake_owner) does not permit: ask first', 'done');
INSERT INTO public.cm_delta_audit VALUES (17, 1795817745759, 'load_orders', 'acquire lease', 'main.sales.orders', '23cf7d37-460e-4800-93e7-d45e4247d9a2', NULL, 'run for DATA_REORGANIZATION, token 1', '', 'done');
INSERT INTO public.cm_delta_audit VALUES (18, 1795817745773, 'load_orders', 'commit', 'main.staff.salaries', '9daeeb3f-dbda-4d4c-b008-588134ba905a', NULL, NULL, 'The commit of version 2 to main.staff.salaries: the principal load_orders does not have the privilege append on main.staff.salaries', 'refused');
INSERT INTO public.cm_delta_audit VALUES (19, 1795817745778, 'lake_owner', 'grant', 'main.sales.orders', '23cf7d37-460e-4800-93e7-d45e4247d9a2', NULL, 'alter to alter_ana', '', 'done');
INSERT INTO public.cm_delta_catalog VALUES (1, '57c6e7d6-ea76-4665-8643-adbb50cda651');
INSERT INTO public.cm_delta_commit_rules VALUES ('main.sales', 'keep', 'append_only', '{}', 'approval', 'ask first', 'rosa', 'lake_owner', 1795817743120);
INSERT INTO public.cm_delta_commit_rules VALUES ('main', 'columns', 'schema_change', '{"principals": ["everything", "report_reader", "public"]}', 'approval', '', '', 'lake_owner', 1795817743137);
INSERT INTO public.cm_delta_commits VALUES ('23cf7d37-460e-4800-93e7-d45e4247d9a2', 0, 'staged', '00000000000000000000.json', 200, 77, '62bb8d77-01a4-4b2e-80c8-17e457c7ce33', 1000, 'WRITE', true, 0, 1795817740938, '{"numFiles": "1"}', '{}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'lake_owner');
INSERT INTO public.cm_delta_commits VALUES ('9daeeb3f-dbda-4d4c-b008-588134ba905a', 0, 'staged', '00000000000000000000.json', 0, 0, 'e969fdd7-7a44-41c0-8017-e34d3cee8a11', 1000, 'WRITE', true, 0, 1795817741140, '{"numFiles": "1"}', '{}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'lake_owner');
INSERT INTO public.cm_delta_commits VALUES ('23cf7d37-460e-4800-93e7-d45e4247d9a2', 1, 'inline', '00000000000000000001.f15c8e80-3534-4b69-9f4b-1ea277b0bb7a.json', 215, 5001, 'c1e27857-5561-4f57-8022-89b686f943e1', 1001, 'WRITE', true, 1, 1795817741279, '{"numFiles": "1"}', '{}', '\x7b22636f6d6d6974496e666f223a207b2274786e4964223a202263316532373835372d353536312d346635372d383032322d383962363836663934336531222c2022696e436f6d6d697454696d657374616d70223a20313030312c20226f7065726174696f6e223a20225752495445227d7d0a7b22616464223a207b2270617468223a202261222c2022706172746974696f6e56616c756573223a207b7d2c202273697a65223a20312c20226d6f64696669636174696f6e54696d65223a20312c2022646174614368616e6765223a20747275657d7d0a', 'a7f6ab098f13483aafb556528b175e22eab7d3ea29212e1c5ef2f67ef1c82861', NULL, NULL, NULL, NULL, NULL, 'lake_owner');
INSERT INTO public.cm_delta_commits VALUES ('9daeeb3f-dbda-4d4c-b008-588134ba905a', 1, 'inline', '00000000000000000001.6d3a9527-be55-41b2-9973-6963cdc0d871.json', 215, 5001, '202cb049-92ba-4a06-a24d-4e9424d133df', 1001, 'WRITE', true, 1, 1795817741353, '{"numFiles": "1"}', '{}', '\x7b22636f6d6d6974496e666f223a207b2274786e4964223a202232303263623034392d393262612d346130362d613234642d346539343234643133336466222c2022696e436f6d6d697454696d657374616d70223a20313030312c20226f7065726174696f6e223a20225752495445227d7d0a7b22616464223a207b2270617468223a202261222c2022706172746974696f6e56616c756573223a207b7d2c202273697a65223a20312c20226d6f64696669636174696f6e54696d65223a20312c2022646174614368616e6765223a20747275657d7d0a', 'aeae78f3da5b30dafe621b8ba9fa081d86f326d71691d3faf93217f27d9e85b9', NULL, NULL, NULL, NULL, NULL, 'lake_owner');
INSERT INTO public.cm_delta_commits VALUES ('23cf7d37-460e-4800-93e7-d45e4247d9a2', 2, 'inline', '00000000000000000002.e90fe210-27bb-4c76-aadf-55e31b13adab.json', 215, 5002, 'bbb2b49f-368d-4a58-905c-b113dad7609c', 1002, 'WRITE', true, 2, 1795817745414, '{"numFiles": "1"}', '{}', '\x7b22636f6d6d6974496e666f223a207b2274786e4964223a202262626232623439662d333638642d346135382d393035632d623131336461643736303963222c2022696e436f6d6d697454696d657374616d70223a20313030322c20226f7065726174696f6e223a20225752495445227d7d0a7b22616464223a207b2270617468223a202261222c2022706172746974696f6e56616c756573223a207b7d2c202273697a65223a20312c20226d6f64696669636174696f6e54696d65223a20312c2022646174614368616e6765223a20747275657d7d0a', '0ae9252a1e84115d64fffc2797b54b50a36008b3020b64a1f234154143b6fbe3', NULL, NULL, NULL, NULL, NULL, 'load_orders');
INSERT INTO public.cm_delta_definitions VALUES ('23cf7d37-460e-4800-93e7-d45e4247d9a2', '{"metaData":{"id":"5d1a","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\": \"struct\", \"fields\": [{\"name\": \"id\", \"type\": \"long\", \"nullable\": true, \"metadata\": {}}]}","partitionColumns":[],"configuration":{}}}', '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["catalogManaged"],"writerFeatures":["catalogManaged","inCommitTimestamp"]}}', 0, 1000);
INSERT INTO public.cm_delta_feed VALUES (1, 1, 'TABLE_CREATED', 1795817740938, '23cf7d37-460e-4800-93e7-d45e4247d9a2', 0, NULL, NULL, NULL);
INSERT INTO public.cm_delta_feed VALUES (2, 2, 'TABLE_CREATED', 1795817741140, '9daeeb3f-dbda-4d4c-b008-588134ba905a', 0, NULL, NULL, NULL);
INSERT INTO public.cm_delta_feed VALUES (3, 3, 'COMMIT', 1795817741279, '23cf7d37-460e-4800-93e7-d45e4247d9a2', 1, NULL, NULL, NULL);
INSERT INTO public.cm_delta_feed VALUES (4, 4, 'COMMIT', 1795817741353, '9daeeb3f-dbda-4d4c-b008-588134ba905a', 1, NULL, NULL, NULL);
INSERT INTO public.cm_delta_feed VALUES (5, 5, 'POLICY_CHANGED', 1795817741370, NULL, NULL, '*', 'lake_owner', '{"action": "create role", "after": "pipelines"}');
INSERT INTO public.cm_delta_feed VALUES (6, 6, 'POLICY_CHANGED', 1795817741370, NULL, NULL, '*', 'lake_owner', '{"action": "add to role", "after": "load_orders in pipelines"}');
INSERT INTO public.cm_delta_feed VALUES (7, 7, 'POLICY_CHANGED', 1795817741942, NULL, NULL, '*', 'lake_owner', '{"action": "create role", "after": "everything"}');
INSERT INTO public.cm_delta_feed VALUES (8, 8, 'POLICY_CHANGED', 1795817741942, NULL, NULL, '*', 'lake_owner', '{"action": "add to role", "after": "pipelines in everything"}');
INSERT INTO public.cm_delta_feed VALUES (9, 9, 'POLICY_CHANGED', 1795817741942, NULL, NULL, '*', 'lake_owner', '{"action": "add to role", "after": "steward_rosa in everything"}');
INSERT INTO public.cm_delta_feed VALUES (10, 10, 'POLICY_CHANGED', 1795817742072, NULL, NULL, '*', 'lake_owner', '{"action": "grant", "after": "own to lake_owner"}');
INSERT INTO public.cm_delta_feed VALUES (11, 11, 'POLICY_CHANGED', 1795817742072, NULL, NULL, '*', 'lake_owner', '{"action": "enable grants", "before": "off", "after": "on"}');
INSERT INTO public.cm_delta_feed VALUES (12, 12, 'POLICY_CHANGED', 1795817743064, NULL, NULL, 'main.sales', 'lake_owner', '{"action": "grant", "after": "modify to pipelines", "reason": "nightly load"}');
INSERT INTO public.cm_delta_feed VALUES (13, 13, 'POLICY_CHANGED', 1795817743076, '9daeeb3f-dbda-4d4c-b008-588134ba905a', NULL, 'main.staff.salaries', 'lake_owner', '{"action": "grant", "after": "read to report_reader"}');
INSERT INTO public.cm_delta_feed VALUES (14, 14, 'POLICY_CHANGED', 1795817743087, NULL, NULL, 'main', 'lake_owner', '{"action": "grant", "after": "read to public"}');
INSERT INTO public.cm_delta_feed VALUES (15, 15, 'POLICY_CHANGED', 1795817743098, '23cf7d37-460e-4800-93e7-d45e4247d9a2', NULL, 'main.sales.orders', 'lake_owner', '{"action": "transfer ownership", "before": "lake_owner", "after": "everything"}');
INSERT INTO public.cm_delta_feed VALUES (16, 16, 'POLICY_CHANGED', 1795817743113, '9daeeb3f-dbda-4d4c-b008-588134ba905a', NULL, 'main.staff.salaries', 'lake_owner', '{"action": "transfer ownership", "before": "lake_owner", "after": "steward_rosa"}');
INSERT INTO public.cm_delta_feed VALUES (17, 17, 'POLICY_CHANGED', 1795817743120, NULL, NULL, 'main.sales', 'lake_owner', '{"action": "set commit rule", "after": "keep: append_only(), approval", "reason": "ask first"}');
INSERT INTO public.cm_delta_feed VALUES (18, 18, 'POLICY_CHANGED', 1795817743137, NULL, NULL, 'main', 'lake_owner', '{"action": "set commit rule", "after": "columns: schema_change(principals=(''everything'', ''report_reader'', ''public'')), approval"}');
INSERT INTO public.cm_delta_feed VALUES (19, 19, 'POLICY_CHANGED', 1795817743148, NULL, NULL, 'main', 'lake_owner', '{"action": "set maintenance rule", "after": "allow DATA_CLEANUP for pipelines and report_reader"}');
INSERT INTO public.cm_delta_feed VALUES (20, 20, 'COMMIT', 1795817745414, '23cf7d37-460e-4800-93e7-d45e4247d9a2', 2, NULL, NULL, NULL);
INSERT INTO public.cm_delta_feed VALUES (21, 21, 'POLICY_CHANGED', 1795817745493, '23cf7d37-460e-4800-93e7-d45e4247d9a2', NULL, 'main.sales.orders', 'load_orders', '{"after": "request a098feade24f", "action": "request approval", "reason": "it removes or changes rows, which the rule ''keep'' of main.sales (append_only, set by lake_owner) does not permit: ask first"}');
INSERT INTO public.cm_delta_feed VALUES (22, 22, 'LEASE_CHANGED', 1795817745759, '23cf7d37-460e-4800-93e7-d45e4247d9a2', NULL, 'main.sales.orders', 'load_orders', '{"after": "run for DATA_REORGANIZATION, token 1", "action": "acquire lease"}');
INSERT INTO public.cm_delta_feed VALUES (24, 24, 'POLICY_CHANGED', 1795817745778, '23cf7d37-460e-4800-93e7-d45e4247d9a2', NULL, 'main.sales.orders', 'lake_owner', '{"action": "grant", "after": "alter to alter_ana"}');
INSERT INTO public.cm_delta_feed VALUES (23, 23, 'PROPOSAL_REFUSED', 1795817745772, '9daeeb3f-dbda-4d4c-b008-588134ba905a', NULL, 'main.staff.salaries', 'load_orders', '{"action": "commit", "reason": "The commit of version 2 to main.staff.salaries: the principal load_orders does not have the privilege append on main.staff.salaries"}');
INSERT INTO public.cm_delta_feed_counter VALUES (1, 24, 0);
INSERT INTO public.cm_delta_grants VALUES ('lake_owner', '*', 'own', 'lake_owner', 1795817742072);
INSERT INTO public.cm_delta_grants VALUES ('pipelines', 'main.sales', 'modify', 'lake_owner', 1795817743064);
INSERT INTO public.cm_delta_grants VALUES ('report_reader', 'id:9daeeb3f-dbda-4d4c-b008-588134ba905a', 'read', 'lake_owner', 1795817743076);
INSERT INTO public.cm_delta_grants VALUES ('public', 'main', 'read', 'lake_owner', 1795817743087);
INSERT INTO public.cm_delta_grants VALUES ('alter_ana', 'id:23cf7d37-460e-4800-93e7-d45e4247d9a2', 'alter', 'lake_owner', 1795817745778);
INSERT INTO public.cm_delta_maintenance_claims VALUES ('23cf7d37-460e-4800-93e7-d45e4247d9a2', 'DATA_REORGANIZATION', 'run', 3372617745758, 1, 1795817745758, 'load_orders');
INSERT INTO public.cm_delta_maintenance_rules VALUES ('main', 'DATA_CLEANUP', true, '', '["pipelines", "report_reader"]', '[]', NULL, NULL, NULL, 'lake_owner', 1795817743148);
INSERT INTO public.cm_delta_role_members VALUES ('load_orders', 'pipelines');
INSERT INTO public.cm_delta_role_members VALUES ('pipelines', 'everything');
INSERT INTO public.cm_delta_role_members VALUES ('steward_rosa', 'everything');
INSERT INTO public.cm_delta_roles VALUES ('pipelines');
INSERT INTO public.cm_delta_roles VALUES ('everything');
INSERT INTO public.cm_delta_tables VALUES ('9daeeb3f-dbda-4d4c-b008-588134ba905a', 'main', 'staff', 'salaries', 'memory://w/main/staff/salaries-0481a4e3082d', 'active', 1, 0, 1, 1001, 1795817741009, 1795817741140, NULL, NULL, NULL, 1, 0, false, 0, 'steward_rosa');
INSERT INTO public.cm_delta_tables VALUES ('23cf7d37-460e-4800-93e7-d45e4247d9a2', 'main', 'sales', 'orders', 'memory://w/main/sales/orders-c325b70f0d23', 'active', 2, 0, 2, 1002, 1795817740910, 1795817740938, NULL, NULL, NULL, 1, 0, false, 1, 'everything');
INSERT INTO public.cm_delta_version_pins VALUES ('run', '23cf7d37-460e-4800-93e7-d45e4247d9a2', 2, 1795817745740, 'load_orders');
SELECT pg_catalog.setval('public.cm_delta_audit_entry_id_seq', 19, true);
SELECT pg_catalog.setval('public.cm_delta_feed_entry_id_seq', 24, true);
ALTER TABLE ONLY public.cm_delta_active_checks
    ADD CONSTRAINT cm_delta_active_checks_pkey PRIMARY KEY (scope, check_name);
ALTER TABLE ONLY public.cm_delta_alembic_version
    ADD CONSTRAINT cm_delta_alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.cm_delta_approvals
    ADD CONSTRAINT cm_delta_approvals_pkey PRIMARY KEY (approval_id);
ALTER TABLE ONLY public.cm_delta_audit
    ADD CONSTRAINT cm_delta_audit_pkey PRIMARY KEY (entry_id);
ALTER TABLE ONLY public.cm_delta_catalog
    ADD CONSTRAINT cm_delta_catalog_pkey PRIMARY KEY (row_id);
ALTER TABLE ONLY public.cm_delta_clones
    ADD CONSTRAINT cm_delta_clones_pkey PRIMARY KEY (clone_id, source_id);
ALTER TABLE ONLY public.cm_delta_commit_policies
    ADD CONSTRAINT cm_delta_commit_policies_pkey PRIMARY KEY (scope);
ALTER TABLE ONLY public.cm_delta_commit_rules
    ADD CONSTRAINT cm_delta_commit_rules_pkey PRIMARY KEY (scope, name);
ALTER TABLE ONLY public.cm_delta_commits
    ADD CONSTRAINT cm_delta_commits_pkey PRIMARY KEY (table_id, version);
ALTER TABLE ONLY public.cm_delta_definitions
    ADD CONSTRAINT cm_delta_definitions_pkey PRIMARY KEY (table_id);
ALTER TABLE ONLY public.cm_delta_feed_counter
    ADD CONSTRAINT cm_delta_feed_counter_pkey PRIMARY KEY (counter_id);
ALTER TABLE ONLY public.cm_delta_feed
    ADD CONSTRAINT cm_delta_feed_pkey PRIMARY KEY (entry_id);
ALTER TABLE ONLY public.cm_delta_feed
    ADD CONSTRAINT cm_delta_feed_position_key UNIQUE ("position");
ALTER TABLE ONLY public.cm_delta_feed_waiters
    ADD CONSTRAINT cm_delta_feed_waiters_pkey PRIMARY KEY (waiter_id);
ALTER TABLE ONLY public.cm_delta_grants
    ADD CONSTRAINT cm_delta_grants_pkey PRIMARY KEY (grantee, scope, privilege);
ALTER TABLE ONLY public.cm_delta_maintenance_claims
    ADD CONSTRAINT cm_delta_maintenance_claims_pkey PRIMARY KEY (table_id);
ALTER TABLE ONLY public.cm_delta_maintenance_rules
    ADD CONSTRAINT cm_delta_maintenance_rules_pkey PRIMARY KEY (scope, kind);
ALTER TABLE ONLY public.cm_delta_registered_paths
    ADD CONSTRAINT cm_delta_registered_paths_pkey PRIMARY KEY (catalog_name, schema_name, table_name);
ALTER TABLE ONLY public.cm_delta_role_members
    ADD CONSTRAINT cm_delta_role_members_pkey PRIMARY KEY (member, role);
ALTER TABLE ONLY public.cm_delta_roles
    ADD CONSTRAINT cm_delta_roles_pkey PRIMARY KEY (role);
ALTER TABLE ONLY public.cm_delta_tables
    ADD CONSTRAINT cm_delta_tables_location_key UNIQUE (location);
ALTER TABLE ONLY public.cm_delta_tables
    ADD CONSTRAINT cm_delta_tables_pkey PRIMARY KEY (table_id);
ALTER TABLE ONLY public.cm_delta_version_pins
    ADD CONSTRAINT cm_delta_version_pins_pkey PRIMARY KEY (owner, table_id, principal);
ALTER TABLE ONLY public.cm_delta_webhook_failures
    ADD CONSTRAINT cm_delta_webhook_failures_pkey PRIMARY KEY (name, "position");
ALTER TABLE ONLY public.cm_delta_webhooks
    ADD CONSTRAINT cm_delta_webhooks_pkey PRIMARY KEY (name);
CREATE INDEX cm_delta_approvals_table ON public.cm_delta_approvals USING btree (table_id, state);
CREATE INDEX cm_delta_clones_source ON public.cm_delta_clones USING btree (source_id);
CREATE INDEX cm_delta_commits_inline ON public.cm_delta_commits USING btree (table_id, version) WHERE (content IS NOT NULL);
CREATE INDEX cm_delta_feed_table ON public.cm_delta_feed USING btree (table_id, version);
CREATE INDEX cm_delta_feed_unplaced ON public.cm_delta_feed USING btree (entry_id) WHERE ("position" IS NULL);
CREATE UNIQUE INDEX cm_delta_tables_active_name ON public.cm_delta_tables USING btree (catalog_name, schema_name, table_name) WHERE (state = 'active'::text);
CREATE INDEX ix_cm_delta_version_pins_pinned_ms ON public.cm_delta_version_pins USING btree (pinned_ms);
ALTER TABLE ONLY public.cm_delta_approvals
    ADD CONSTRAINT cm_delta_approvals_table_id_fkey FOREIGN KEY (table_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE ONLY public.cm_delta_clones
    ADD CONSTRAINT cm_delta_clones_clone_id_fkey FOREIGN KEY (clone_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE ONLY public.cm_delta_clones
    ADD CONSTRAINT cm_delta_clones_source_id_fkey FOREIGN KEY (source_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE ONLY public.cm_delta_commits
    ADD CONSTRAINT cm_delta_commits_table_id_fkey FOREIGN KEY (table_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE ONLY public.cm_delta_definitions
    ADD CONSTRAINT cm_delta_definitions_table_id_fkey FOREIGN KEY (table_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE ONLY public.cm_delta_maintenance_claims
    ADD CONSTRAINT cm_delta_maintenance_claims_table_id_fkey FOREIGN KEY (table_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE ONLY public.cm_delta_role_members
    ADD CONSTRAINT cm_delta_role_members_role_fkey FOREIGN KEY (role) REFERENCES public.cm_delta_roles(role);
ALTER TABLE ONLY public.cm_delta_version_pins
    ADD CONSTRAINT cm_delta_version_pins_table_id_fkey FOREIGN KEY (table_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE public.cm_delta_approvals ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.cm_delta_audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.cm_delta_clones ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.cm_delta_commits ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.cm_delta_definitions ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.cm_delta_feed ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.cm_delta_feed_waiters ENABLE ROW LEVEL SECURITY;
CREATE POLICY cm_delta_lock ON public.cm_delta_tables FOR UPDATE USING (public.cm_delta_holds(table_id, ARRAY['append'::text, 'alter'::text, 'maintain'::text])) WITH CHECK (false);
ALTER TABLE public.cm_delta_maintenance_claims ENABLE ROW LEVEL SECURITY;
CREATE POLICY cm_delta_read ON public.cm_delta_approvals FOR SELECT USING (((requested_by = SESSION_USER) OR public.cm_delta_holds(table_id, ARRAY['maintain'::text])));
CREATE POLICY cm_delta_read ON public.cm_delta_audit FOR SELECT USING (((principal = SESSION_USER) OR ( SELECT public.cm_delta_holds_all(ARRAY['own'::text]) AS cm_delta_holds_all)));
CREATE POLICY cm_delta_read ON public.cm_delta_clones FOR SELECT USING ((public.cm_delta_holds(clone_id, ARRAY['read'::text]) OR public.cm_delta_holds(source_id, ARRAY['read'::text])));
CREATE POLICY cm_delta_read ON public.cm_delta_commits FOR SELECT USING ((( SELECT public.cm_delta_holds_all(ARRAY['read'::text]) AS cm_delta_holds_all) OR public.cm_delta_holds(table_id, ARRAY['read'::text])));
CREATE POLICY cm_delta_read ON public.cm_delta_definitions FOR SELECT USING ((( SELECT public.cm_delta_holds_all(ARRAY['read'::text]) AS cm_delta_holds_all) OR public.cm_delta_holds(table_id, ARRAY['read'::text])));
CREATE POLICY cm_delta_read ON public.cm_delta_feed FOR SELECT USING (
CASE
    WHEN (table_id IS NULL) THEN ((actor = SESSION_USER) OR ( SELECT public.cm_delta_holds_all(ARRAY['own'::text]) AS cm_delta_holds_all))
    ELSE (( SELECT public.cm_delta_holds_all(ARRAY['read'::text]) AS cm_delta_holds_all) OR public.cm_delta_holds(table_id, ARRAY['read'::text]))
END);
CREATE POLICY cm_delta_read ON public.cm_delta_maintenance_claims FOR SELECT USING (public.cm_delta_holds(table_id, ARRAY['read'::text]));
CREATE POLICY cm_delta_read ON public.cm_delta_tables FOR SELECT USING ((( SELECT public.cm_delta_holds_all(ARRAY['read'::text]) AS cm_delta_holds_all) OR public.cm_delta_holds(table_id, ARRAY['read'::text])));
CREATE POLICY cm_delta_read ON public.cm_delta_version_pins FOR SELECT USING (public.cm_delta_holds(table_id, ARRAY['read'::text]));
CREATE POLICY cm_delta_read ON public.cm_delta_webhook_failures FOR SELECT USING (( SELECT public.cm_delta_holds_all(ARRAY['own'::text]) AS cm_delta_holds_all));
CREATE POLICY cm_delta_read ON public.cm_delta_webhooks FOR SELECT USING (( SELECT public.cm_delta_holds_all(ARRAY['own'::text]) AS cm_delta_holds_all));
ALTER TABLE public.cm_delta_tables ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.cm_delta_version_pins ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.cm_delta_webhook_failures ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.cm_delta_webhooks ENABLE ROW LEVEL SECURITY;
REVOKE ALL ON FUNCTION public.cm_delta_accept(of_table text, proposal jsonb, content bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_actions(content bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_advances_row_ids(content bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_append_entry(of_kind text, of_table text, of_version bigint, of_scope text, of_actor text, facts jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_are_texts(given jsonb, of_type text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_check_rules(of_table text, proposal jsonb, content bytea, what text, name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_column_change(wanted text, before jsonb, after jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_commit_facts(of_table text, proposal jsonb, content bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_constraint_key(metadata jsonb, name text) FROM PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_approvals TO PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_end_request(request public.cm_delta_approvals, of_state text, of_version bigint, because text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_examine(of_table text, proposal jsonb, content bytea, with_rules boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_file_key(given jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_has_waiters() FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_inner(of_type jsonb, wanted text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_is_action(name text, given jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_is_natural(given jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_keeps(before jsonb, after jsonb) FROM PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_maintenance_claims TO PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_lease_holder(held public.cm_delta_maintenance_claims) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_lease_lost(what text, of_table text, name text, of_token bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_lease_text(held public.cm_delta_maintenance_claims) FROM PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_tables TO PUBLIC;
GRANT UPDATE(reserved_ms) ON TABLE public.cm_delta_tables TO PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_locked_for_lease(of_table text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_metadata_violation(of_table text, kind text, arguments jsonb, before jsonb, after jsonb, adds bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_name(head public.cm_delta_tables) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_now_ms() FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_over_limit(arguments jsonb, counted text, removed numeric, total numeric) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_owners(of_table text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_pending_request(of_request text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_physical_name(of_field jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_record(of_action text, of_scope text, of_table text, before text, after text, because text, of_outcome text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_refused(what text, of_table text, name text, lacking text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_reject(because text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_require_read_committed() FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_required(content bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_rows(added boolean, content bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_rules_digest(of_table text) FROM PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_commit_rules TO PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_rules_of(of_table text) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_violation(of_table text, kind text, arguments jsonb, facts jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_violations(of_table text, proposal jsonb, content bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.cm_delta_without_marks(given jsonb) FROM PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_active_checks TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_alembic_version TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_audit TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_catalog TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_clones TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_commit_policies TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_commits TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_definitions TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_feed TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_feed_counter TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_grants TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_maintenance_rules TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_registered_paths TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_role_members TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_roles TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_version_pins TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_webhook_failures TO PUBLIC;
GRANT SELECT ON TABLE public.cm_delta_webhooks TO PUBLIC;
