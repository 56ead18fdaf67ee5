-- Functions by which roles that do not own the catalog's tables request, give and refuse approvals. install_rules.sql and
-- install_grants.sql have the functions that these call; the second says which of these are for callers.

CREATE OR REPLACE FUNCTION {schema}.cm_delta_are_texts(given jsonb, of_type text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    -- Whether it is an object, or an array, and has texts only.
    SELECT CASE
        WHEN given IS NULL OR jsonb_typeof(given) <> of_type THEN false
        WHEN of_type = 'object' THEN NOT EXISTS (SELECT FROM jsonb_each(given) e WHERE jsonb_typeof(e.value) <> 'string')
        ELSE NOT EXISTS (SELECT FROM jsonb_array_elements(given) e(value) WHERE jsonb_typeof(e.value) <> 'string')
    END
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_request_approval(of_table text, proposal jsonb, content bytea, request jsonb)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- Keeps a proposal that the caller may commit, and that violates rules which an approval lets pass. The approval holds for those
-- of them that the caller names. Owners read what the database found, and not what the caller says.
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
        WHERE (r.value #>> '{{}}')::jsonb IN (SELECT v.value -> 'demand' FROM jsonb_array_elements(violated) v);
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
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_pending_request(of_request text) RETURNS {schema}.cm_delta_approvals
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_end_request(
    request {schema}.cm_delta_approvals, of_state text, of_version bigint, because text
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_close_approval(of_request text, of_state text, because text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
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
