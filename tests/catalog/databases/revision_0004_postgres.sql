CREATE TABLE public.cm_delta_alembic_version (
    version_num character varying(32) NOT NULL
);
ALTER TABLE public.cm_delta_alembic_version OWNER TO lake_owner;
CREATE TABLE public.cm_delta_catalog (
    row_id integer NOT NULL,
    catalog_id text NOT NULL
);
ALTER TABLE public.cm_delta_catalog OWNER TO lake_owner;
CREATE TABLE public.cm_delta_commit_policies (
    scope text NOT NULL,
    policy text NOT NULL
);
ALTER TABLE public.cm_delta_commit_policies OWNER TO lake_owner;
CREATE TABLE public.cm_delta_commits (
    table_id text NOT NULL,
    version bigint NOT NULL,
    "position" bigint NOT NULL,
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
    content bytea
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
CREATE TABLE public.cm_delta_feed_counter (
    counter_id integer NOT NULL,
    "position" bigint NOT NULL
);
ALTER TABLE public.cm_delta_feed_counter OWNER TO lake_owner;
CREATE TABLE public.cm_delta_maintenance_claims (
    table_id text NOT NULL,
    kind text NOT NULL,
    owner text NOT NULL,
    expires_ms bigint NOT NULL
);
ALTER TABLE public.cm_delta_maintenance_claims OWNER TO lake_owner;
CREATE TABLE public.cm_delta_maintenance_rules (
    scope text NOT NULL,
    kind text NOT NULL,
    allowed boolean NOT NULL,
    reason text NOT NULL
);
ALTER TABLE public.cm_delta_maintenance_rules OWNER TO lake_owner;
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
    etag bigint DEFAULT 0 NOT NULL
);
ALTER TABLE public.cm_delta_tables OWNER TO lake_owner;
CREATE TABLE public.cm_delta_version_pins (
    owner text NOT NULL,
    table_id text NOT NULL,
    version bigint NOT NULL,
    pinned_ms bigint NOT NULL
);
ALTER TABLE public.cm_delta_version_pins OWNER TO lake_owner;
INSERT INTO public.cm_delta_alembic_version VALUES ('0004');
INSERT INTO public.cm_delta_catalog VALUES (1, '3cd16d37-f92a-4556-8d4a-97f0720a2976');
INSERT INTO public.cm_delta_commit_policies VALUES ('main.staff', 'inline');
INSERT INTO public.cm_delta_commits VALUES ('c91b8141-c4f3-49d5-941c-eb73e6c2b5a1', 0, 1, 'staged', '00000000000000000000.json', 0, 0, 'bbb1b7a2-8af9-4dd6-870d-8171e26bb9b3', 1000, 'WRITE', true, 0, 1763800000000, '{"numFiles": "1"}', '{}', NULL);
INSERT INTO public.cm_delta_commits VALUES ('7f9b95f4-37da-4ae2-885f-b319153ef1e0', 0, 2, 'staged', '00000000000000000000.json', 0, 0, '34e3a0a5-88f4-430a-80df-656ad10698f0', 1000, 'WRITE', true, 0, 1763800000000, '{"numFiles": "1"}', '{}', NULL);
INSERT INTO public.cm_delta_commits VALUES ('c91b8141-c4f3-49d5-941c-eb73e6c2b5a1', 1, 3, 'staged', '00000000000000000001.a27399e9-25aa-4bba-bb1e-5d5fda6339df.json', 101, 5001, 'dede4114-df16-444a-b84f-e738d5177090', 1001, 'WRITE', true, 1, 1763800001000, '{"numFiles": "1"}', '{}', NULL);
INSERT INTO public.cm_delta_commits VALUES ('7f9b95f4-37da-4ae2-885f-b319153ef1e0', 1, 4, 'inline', '00000000000000000001.5758bad4-8d84-4aa4-bea6-e29252285079.json', 93, 5001, '2acb1c09-5b52-4eb6-9349-6db7859a9cd6', 1001, 'WRITE', true, 1, 1763800001000, '{"numFiles": "1"}', '{}', '\x7b22636f6d6d6974496e666f223a207b2274786e4964223a202232616362316330392d356235322d346562362d393334392d366462373835396139636436222c2022696e436f6d6d697454696d657374616d70223a20313030317d7d0a');
INSERT INTO public.cm_delta_commits VALUES ('c91b8141-c4f3-49d5-941c-eb73e6c2b5a1', 2, 5, 'staged', '00000000000000000002.b5e75830-7142-41b8-8396-26dcafb5bd67.json', 102, 5002, 'e2639d93-d023-4fa6-aaa7-49c10f7c6f98', 1002, 'WRITE', true, 2, 1763800002000, '{"numFiles": "1"}', '{}', NULL);
INSERT INTO public.cm_delta_commits VALUES ('7f9b95f4-37da-4ae2-885f-b319153ef1e0', 2, 6, 'inline', '00000000000000000002.22c9c942-f50c-4ac4-bf56-ad78aa26eedd.json', 93, 5002, '8c51c576-c790-4da9-8973-27f2344d3193', 1002, 'WRITE', true, 2, 1763800002000, '{"numFiles": "1"}', '{}', '\x7b22636f6d6d6974496e666f223a207b2274786e4964223a202238633531633537362d633739302d346461392d383937332d323766323334346433313933222c2022696e436f6d6d697454696d657374616d70223a20313030327d7d0a');
INSERT INTO public.cm_delta_commits VALUES ('a4068877-0ba1-4a8b-874b-4abbc4af7999', 0, 7, 'staged', '00000000000000000000.json', 0, 0, '14c10b6f-d7f7-4c29-b116-fbf9d052d548', 1000, 'WRITE', true, 0, 1763800002000, '{"numFiles": "1"}', '{}', NULL);
INSERT INTO public.cm_delta_commits VALUES ('c365f135-2e9c-4f9d-9875-25eb69b91a01', 0, 8, 'staged', '00000000000000000000.json', 0, 0, '67442b3c-5c7c-4a72-9b4b-c09de7f13b11', 1000, 'WRITE', true, 0, 1763800002000, '{"numFiles": "1"}', '{}', NULL);
INSERT INTO public.cm_delta_definitions VALUES ('c91b8141-c4f3-49d5-941c-eb73e6c2b5a1', '{"metaData":{"id":"5d1a","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\": \"struct\", \"fields\": [{\"name\": \"id\", \"type\": \"long\", \"nullable\": true, \"metadata\": {}}]}","partitionColumns":[],"configuration":{}}}', '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["catalogManaged"],"writerFeatures":["catalogManaged","inCommitTimestamp"]}}', 2, 1002);
INSERT INTO public.cm_delta_feed_counter VALUES (1, 8);
INSERT INTO public.cm_delta_maintenance_claims VALUES ('c91b8141-c4f3-49d5-941c-eb73e6c2b5a1', 'CHECKPOINT', 'run', 2763800002000);
INSERT INTO public.cm_delta_maintenance_rules VALUES ('main', 'DATA_CLEANUP', false, 'kept for the audit');
INSERT INTO public.cm_delta_tables VALUES ('c91b8141-c4f3-49d5-941c-eb73e6c2b5a1', 'main', 'sales', 'orders', 'memory://w/main/sales/orders-72b47ffca20f', 'active', 2, 1, 2, 1002, 1763800000000, 1763800000000, NULL, NULL, NULL, 3, 0);
INSERT INTO public.cm_delta_tables VALUES ('7f9b95f4-37da-4ae2-885f-b319153ef1e0', 'main', 'staff', 'salaries', 'memory://w/main/staff/salaries-cb704b663349', 'active', 2, 1, 2, 1002, 1763800000000, 1763800000000, NULL, NULL, NULL, 1, 0);
INSERT INTO public.cm_delta_tables VALUES ('a4068877-0ba1-4a8b-874b-4abbc4af7999', 'main', 'sales', 'old', 'memory://w/main/sales/old-2d1867e76aa4', 'dropped', 0, 0, 0, 1000, 1763800002000, 1763800002000, 1763800002000, NULL, NULL, 1, 0);
INSERT INTO public.cm_delta_tables VALUES ('2a518c13-c014-46aa-94a7-507bc75fcae5', 'spare', 'sales', 'reserved', 'memory://w/spare/sales/reserved-18cc22fdeee3', 'staging', -1, -1, -1, -1, 1763800002000, NULL, NULL, NULL, NULL, 0, 0);
INSERT INTO public.cm_delta_tables VALUES ('c365f135-2e9c-4f9d-9875-25eb69b91a01', 'Lake', 'Sales', 'renamed', 'memory://w/main/sales/first-98cea488e5fc', 'active', 0, 0, 0, 1000, 1763800002000, 1763800002000, NULL, NULL, NULL, 1, 1);
INSERT INTO public.cm_delta_version_pins VALUES ('run', 'c91b8141-c4f3-49d5-941c-eb73e6c2b5a1', 1, 1763800002000);
ALTER TABLE ONLY public.cm_delta_alembic_version
    ADD CONSTRAINT cm_delta_alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.cm_delta_catalog
    ADD CONSTRAINT cm_delta_catalog_pkey PRIMARY KEY (row_id);
ALTER TABLE ONLY public.cm_delta_commit_policies
    ADD CONSTRAINT cm_delta_commit_policies_pkey PRIMARY KEY (scope);
ALTER TABLE ONLY public.cm_delta_commits
    ADD CONSTRAINT cm_delta_commits_pkey PRIMARY KEY (table_id, version);
ALTER TABLE ONLY public.cm_delta_commits
    ADD CONSTRAINT cm_delta_commits_position_key UNIQUE ("position");
ALTER TABLE ONLY public.cm_delta_definitions
    ADD CONSTRAINT cm_delta_definitions_pkey PRIMARY KEY (table_id);
ALTER TABLE ONLY public.cm_delta_feed_counter
    ADD CONSTRAINT cm_delta_feed_counter_pkey PRIMARY KEY (counter_id);
ALTER TABLE ONLY public.cm_delta_maintenance_claims
    ADD CONSTRAINT cm_delta_maintenance_claims_pkey PRIMARY KEY (table_id);
ALTER TABLE ONLY public.cm_delta_maintenance_rules
    ADD CONSTRAINT cm_delta_maintenance_rules_pkey PRIMARY KEY (scope, kind);
ALTER TABLE ONLY public.cm_delta_tables
    ADD CONSTRAINT cm_delta_tables_location_key UNIQUE (location);
ALTER TABLE ONLY public.cm_delta_tables
    ADD CONSTRAINT cm_delta_tables_pkey PRIMARY KEY (table_id);
ALTER TABLE ONLY public.cm_delta_version_pins
    ADD CONSTRAINT cm_delta_version_pins_pkey PRIMARY KEY (owner, table_id);
CREATE INDEX cm_delta_commits_inline ON public.cm_delta_commits USING btree (table_id, version) WHERE (content IS NOT NULL);
CREATE UNIQUE INDEX cm_delta_tables_active_name ON public.cm_delta_tables USING btree (catalog_name, schema_name, table_name) WHERE (state = 'active'::text);
CREATE INDEX ix_cm_delta_version_pins_pinned_ms ON public.cm_delta_version_pins USING btree (pinned_ms);
ALTER TABLE ONLY public.cm_delta_commits
    ADD CONSTRAINT cm_delta_commits_table_id_fkey FOREIGN KEY (table_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE ONLY public.cm_delta_definitions
    ADD CONSTRAINT cm_delta_definitions_table_id_fkey FOREIGN KEY (table_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE ONLY public.cm_delta_maintenance_claims
    ADD CONSTRAINT cm_delta_maintenance_claims_table_id_fkey FOREIGN KEY (table_id) REFERENCES public.cm_delta_tables(table_id);
ALTER TABLE ONLY public.cm_delta_version_pins
    ADD CONSTRAINT cm_delta_version_pins_table_id_fkey FOREIGN KEY (table_id) REFERENCES public.cm_delta_tables(table_id);
