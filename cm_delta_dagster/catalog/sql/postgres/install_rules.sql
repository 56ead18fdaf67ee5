-- Functions that read the actions of a proposed commit and evaluate the commit rules of its table, as catalog/rules does. The
-- functions of install_grants.sql and install_approvals.sql, which run later, call them; none is for callers.

CREATE OR REPLACE FUNCTION {schema}.cm_delta_is_natural(given jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    -- Without a search path of its own, PostgreSQL inlines it in the functions that call it, which have one.
    SELECT coalesce(jsonb_typeof(given) = 'number' AND given::text ~ '^[0-9]{{1,18}}$', false)
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_is_action(name text, given jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
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
        SELECT FROM jsonb_each(CASE WHEN name IN ('add', 'remove', 'cdc', 'txn') AND jsonb_typeof(given) = 'object' THEN given ELSE '{{}}' END) f
        WHERE f.value <> 'null' AND NOT CASE
            WHEN f.key IN ('baseRowId', 'defaultRowCommitVersion', 'deletionTimestamp', 'lastUpdated', 'modificationTime', 'size')
                THEN cm_delta_is_natural(f.value)
            WHEN f.key IN ('clusteringProvider', 'stats') THEN jsonb_typeof(f.value) = 'string'
            WHEN f.key = 'extendedFileMetadata' THEN jsonb_typeof(f.value) = 'boolean'
            WHEN f.key IN ('partitionValues', 'tags') THEN jsonb_typeof(f.value) = 'object' AND NOT EXISTS (
                SELECT FROM jsonb_each(CASE WHEN jsonb_typeof(f.value) = 'object' THEN f.value ELSE '{{}}' END) p
                WHERE jsonb_typeof(p.value) NOT IN ('string', 'null'))
            WHEN f.key = 'deletionVector' THEN coalesce(jsonb_typeof(f.value -> 'storageType') = 'string'
                AND jsonb_typeof(f.value -> 'pathOrInlineDv') = 'string' AND cm_delta_is_natural(f.value -> 'sizeInBytes')
                AND cm_delta_is_natural(f.value -> 'cardinality')
                AND (coalesce(f.value -> 'offset', 'null') = 'null' OR cm_delta_is_natural(f.value -> 'offset')), false)
            ELSE true
        END
    ), false)
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_file_key(given jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    -- Identifies a data file with its deletion vector. Inlined as cm_delta_is_natural.
    SELECT concat_ws(E'\n', given ->> 'path', given -> 'deletionVector' ->> 'storageType', given -> 'deletionVector' ->> 'pathOrInlineDv',
        given -> 'deletionVector' ->> 'offset')
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_actions(content bytea)
RETURNS TABLE (name text, given jsonb, line text, changes_data boolean, is_valid boolean)
LANGUAGE sql IMMUTABLE AS $$
    -- The actions of a commit. Content that is not JSON in each line fails. Inlined, too: a query computes only the columns it uses.
    WITH lines AS (
        SELECT of_line.line, of_line.line::jsonb AS action FROM regexp_split_to_table(convert_from(content, 'UTF8'), E'\n') AS of_line(line)
        WHERE btrim(of_line.line, E' \t\r') <> ''
    )
    SELECT a.key, a.value, l.line, coalesce(a.value -> 'dataChange', 'true') <> 'false',
        (SELECT count(*) FROM jsonb_object_keys(l.action)) = 1 AND {schema}.cm_delta_is_action(a.key, a.value)
    FROM lines l, jsonb_each(l.action) AS a
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_rows(added boolean, content bytea) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp SET enable_nestloop = off AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_advances_row_ids(content bytea) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_required(content bytea) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_inner(of_type jsonb, wanted text) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    -- The field of a struct; also element of an array, key and value of a map.
    SELECT CASE of_type ->> 'type'
        WHEN 'struct' THEN (SELECT f.value FROM jsonb_array_elements(of_type -> 'fields') f
            WHERE lower(f.value ->> 'name') = lower(wanted) LIMIT 1)
        WHEN 'array' THEN CASE lower(wanted) WHEN 'element' THEN jsonb_build_object('name', wanted, 'type', of_type -> 'elementType') END
        WHEN 'map' THEN CASE lower(wanted) WHEN 'key' THEN jsonb_build_object('name', wanted, 'type', of_type -> 'keyType')
            WHEN 'value' THEN jsonb_build_object('name', wanted, 'type', of_type -> 'valueType') END
    END
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_physical_name(of_field jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT lower(coalesce(of_field -> 'metadata' ->> 'delta.columnMapping.physicalName', of_field ->> 'name'))
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_keeps(before jsonb, after jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_column_change(wanted text, before jsonb, after jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_without_marks(given jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- A schema without the metadata that writes of identity columns change.
BEGIN
    RETURN CASE jsonb_typeof(given)
        WHEN 'object' THEN (SELECT coalesce(jsonb_object_agg(e.key, cm_delta_without_marks(e.value)), '{{}}')
            FROM jsonb_each(given) e WHERE e.key <> 'delta.identity.highWaterMark')
        WHEN 'array' THEN (SELECT coalesce(jsonb_agg(cm_delta_without_marks(e.value) ORDER BY e.place), '[]')
            FROM jsonb_array_elements(given) WITH ORDINALITY AS e(value, place))
        ELSE given
    END;
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_over_limit(arguments jsonb, counted text, removed numeric, total numeric) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_rules_of(of_table text) RETURNS SETOF {schema}.cm_delta_commit_rules
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT r.* FROM cm_delta_tables t JOIN cm_delta_commit_rules r
        ON r.scope IN (t.catalog_name, t.catalog_name || '.' || t.schema_name, cm_delta_name(t))
    WHERE t.table_id = of_table ORDER BY r.scope COLLATE "C", r.name COLLATE "C"
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_rules_digest(of_table text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    -- Changes when a commit rule that applies to the table is set, changed or removed.
    SELECT md5(coalesce(string_agg(r::text, E'\n' ORDER BY r.scope COLLATE "C", r.name COLLATE "C"), ''))
    FROM cm_delta_rules_of(of_table) r
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_commit_facts(of_table text, proposal jsonb, content bytea) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET enable_nestloop = off AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_metadata_violation(
    of_table text, kind text, arguments jsonb, before jsonb, after jsonb, adds bigint
) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
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
            SELECT jsonb_object_keys(coalesce(before -> 'configuration', '{{}}') || coalesce(after -> 'configuration', '{{}}')) AS key
        ) p
        WHERE lower(p.key) IN (SELECT lower(w) FROM jsonb_array_elements_text(arguments -> 'properties') w)
            AND before -> 'configuration' ->> p.key IS DISTINCT FROM after -> 'configuration' ->> p.key);
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_constraint_key(metadata jsonb, name text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT k FROM jsonb_object_keys(metadata -> 'configuration') k
    WHERE lower(k) = lower('delta.constraints.' || name) AND starts_with(k, 'delta.constraints.') LIMIT 1
$$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_violation(of_table text, kind text, arguments jsonb, facts jsonb) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- What a commit with these facts does against a rule, a clause without subject. NULL: nothing.
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
            IF pattern !~ {portable_pattern} THEN
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
END $$;

CREATE OR REPLACE FUNCTION {schema}.cm_delta_violations(of_table text, proposal jsonb, content bytea) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION {schema}.cm_delta_check_rules(of_table text, proposal jsonb, content bytea, what text, name text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
-- NULL: the rules permit the commit. A client of the package that is told to check first finds the same, and says more about it.
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
END $$;
