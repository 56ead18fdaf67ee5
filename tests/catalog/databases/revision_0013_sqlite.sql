BEGIN TRANSACTION;
CREATE TABLE cm_delta_active_checks (
	scope TEXT NOT NULL, 
	check_name TEXT NOT NULL, 
	PRIMARY KEY (scope, check_name)
);
INSERT INTO "cm_delta_active_checks" VALUES('*','grants');
INSERT INTO "cm_delta_active_checks" VALUES('main.sales','commit_rules');
INSERT INTO "cm_delta_active_checks" VALUES('main','commit_rules');
CREATE TABLE cm_delta_alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT cm_delta_alembic_version_pkc PRIMARY KEY (version_num));
INSERT INTO "cm_delta_alembic_version" VALUES('0013');
CREATE TABLE cm_delta_approvals (
	approval_id TEXT NOT NULL, 
	table_id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	operation TEXT NOT NULL, 
	txn_id TEXT NOT NULL, 
	read_version BIGINT NOT NULL, 
	what TEXT NOT NULL, 
	rules TEXT DEFAULT '[]' NOT NULL, 
	contacts TEXT NOT NULL, 
	requested_by TEXT, 
	requested_ms BIGINT NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	app_id TEXT, 
	app_version BIGINT, 
	intent TEXT NOT NULL, 
	mode TEXT NOT NULL, 
	file_name TEXT NOT NULL, 
	file_size BIGINT NOT NULL, 
	sha256 TEXT, 
	content BLOB, 
	fingerprint TEXT NOT NULL, 
	decided_by TEXT, 
	decided_ms BIGINT, 
	reason TEXT NOT NULL, 
	version BIGINT, 
	PRIMARY KEY (approval_id), 
	FOREIGN KEY(table_id) REFERENCES cm_delta_tables (table_id)
);
INSERT INTO "cm_delta_approvals" VALUES('45f91ea37e3c','8166e830-4487-4c51-af78-bc7f5712fb7f','pending','WRITE','9212901f-407c-4648-9446-f7bbdee2be5d',2,'["it removes or changes rows, which the rule ''keep'' of main.sales (append_only, set by lake_owner) does not permit: ask first"]','["{\"scope\": \"main.sales\", \"name\": \"keep\", \"kind\": \"append_only\", \"arguments\": {}}"]','["rosa"]','load_orders',1795817723848,1796422523848,'job',1,'{}','inline','00000000000000000003.7f7a8c18-a499-4d00-846c-061284de3add.json',185,'e893b86ecb72343971ad5b406b10fee3575132fe175987129b1416efff3ba0c8',X'7B22636F6D6D6974496E666F223A207B2274786E4964223A202239323132393031662D343037632D343634382D393434362D663762626465653262653564222C2022696E436F6D6D697454696D657374616D70223A20313030332C20226F7065726174696F6E223A20225752495445227D7D0A7B2272656D6F7665223A207B2270617468223A202261222C2022646174614368616E6765223A20747275652C202264656C6574696F6E54696D657374616D70223A20317D7D0A','4d8a54709270add3dfef45d706eafce0dc24eb35c4df3cee382529603b0f6a2f',NULL,NULL,'',NULL);
CREATE TABLE cm_delta_audit (
	entry_id INTEGER NOT NULL, 
	at_ms BIGINT NOT NULL, 
	principal TEXT, 
	action TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	table_id TEXT, 
	state_before TEXT, 
	state_after TEXT, 
	reason TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	PRIMARY KEY (entry_id)
);
INSERT INTO "cm_delta_audit" VALUES(1,1795817723266,'lake_owner','create role','*',NULL,NULL,'pipelines','','done');
INSERT INTO "cm_delta_audit" VALUES(2,1795817723266,'lake_owner','add to role','*',NULL,NULL,'load_orders in pipelines','','done');
INSERT INTO "cm_delta_audit" VALUES(3,1795817723290,'lake_owner','create role','*',NULL,NULL,'everything','','done');
INSERT INTO "cm_delta_audit" VALUES(4,1795817723290,'lake_owner','add to role','*',NULL,NULL,'pipelines in everything','','done');
INSERT INTO "cm_delta_audit" VALUES(5,1795817723290,'lake_owner','add to role','*',NULL,NULL,'steward_rosa in everything','','done');
INSERT INTO "cm_delta_audit" VALUES(6,1795817723334,'lake_owner','grant','*',NULL,NULL,'own to lake_owner','','done');
INSERT INTO "cm_delta_audit" VALUES(7,1795817723334,'lake_owner','enable grants','*',NULL,'off','on','','done');
INSERT INTO "cm_delta_audit" VALUES(8,1795817723622,'lake_owner','grant','main.sales',NULL,NULL,'modify to pipelines','nightly load','done');
INSERT INTO "cm_delta_audit" VALUES(9,1795817723638,'lake_owner','grant','main.staff.salaries','46521ebc-218a-4c9c-9922-b4cdb2df8834',NULL,'read to report_reader','','done');
INSERT INTO "cm_delta_audit" VALUES(10,1795817723650,'lake_owner','grant','main',NULL,NULL,'read to public','','done');
INSERT INTO "cm_delta_audit" VALUES(11,1795817723656,'lake_owner','transfer ownership','main.sales.orders','8166e830-4487-4c51-af78-bc7f5712fb7f','lake_owner','everything','','done');
INSERT INTO "cm_delta_audit" VALUES(12,1795817723674,'lake_owner','transfer ownership','main.staff.salaries','46521ebc-218a-4c9c-9922-b4cdb2df8834','lake_owner','steward_rosa','','done');
INSERT INTO "cm_delta_audit" VALUES(13,1795817723686,'lake_owner','set commit rule','main.sales',NULL,NULL,'keep: append_only(), approval','ask first','done');
INSERT INTO "cm_delta_audit" VALUES(14,1795817723782,'lake_owner','set commit rule','main',NULL,NULL,'columns: schema_change(principals=(''everything'', ''report_reader'', ''public'')), approval','','done');
INSERT INTO "cm_delta_audit" VALUES(15,1795817723797,'lake_owner','set maintenance rule','main',NULL,NULL,'allow DATA_CLEANUP for pipelines and report_reader','','done');
INSERT INTO "cm_delta_audit" VALUES(16,1795817723848,'load_orders','request approval','main.sales.orders','8166e830-4487-4c51-af78-bc7f5712fb7f',NULL,'request 45f91ea37e3c','it removes or changes rows, which the rule ''keep'' of main.sales (append_only, set by lake_owner) does not permit: ask first','done');
INSERT INTO "cm_delta_audit" VALUES(17,1795817723926,'load_orders','acquire lease','main.sales.orders','8166e830-4487-4c51-af78-bc7f5712fb7f',NULL,'run for DATA_REORGANIZATION, token 1','','done');
INSERT INTO "cm_delta_audit" VALUES(18,1795817724028,'load_orders','commit','main.staff.salaries','46521ebc-218a-4c9c-9922-b4cdb2df8834',NULL,NULL,'The commit of version 2 to main.staff.salaries: the principal load_orders does not have the privilege append on main.staff.salaries','refused');
INSERT INTO "cm_delta_audit" VALUES(19,1795817724063,'lake_owner','grant','main.sales.orders','8166e830-4487-4c51-af78-bc7f5712fb7f',NULL,'alter to alter_ana','','done');
CREATE TABLE cm_delta_catalog (
	row_id INTEGER NOT NULL, 
	catalog_id TEXT NOT NULL, 
	PRIMARY KEY (row_id)
);
INSERT INTO "cm_delta_catalog" VALUES(1,'506f7b45-1bb2-4e83-92d2-1348b392a099');
CREATE TABLE cm_delta_clones (
	clone_id TEXT NOT NULL, 
	source_id TEXT NOT NULL, 
	PRIMARY KEY (clone_id, source_id), 
	FOREIGN KEY(clone_id) REFERENCES cm_delta_tables (table_id), 
	FOREIGN KEY(source_id) REFERENCES cm_delta_tables (table_id)
);
CREATE TABLE cm_delta_commit_policies (
	scope TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	PRIMARY KEY (scope)
);
CREATE TABLE cm_delta_commit_rules (
	scope TEXT NOT NULL, 
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	arguments TEXT NOT NULL, 
	on_violation TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	contact TEXT NOT NULL, 
	set_by TEXT NOT NULL, 
	set_ms BIGINT NOT NULL, 
	PRIMARY KEY (scope, name)
);
INSERT INTO "cm_delta_commit_rules" VALUES('main.sales','keep','append_only','{}','approval','ask first','rosa','lake_owner',1795817723686);
INSERT INTO "cm_delta_commit_rules" VALUES('main','columns','schema_change','{"principals": ["everything", "report_reader", "public"]}','approval','','','lake_owner',1795817723782);
CREATE TABLE cm_delta_commits (
	table_id TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	mode TEXT NOT NULL, 
	file_name TEXT NOT NULL, 
	file_size BIGINT NOT NULL, 
	file_modification_time BIGINT NOT NULL, 
	txn_id TEXT NOT NULL, 
	in_commit_timestamp BIGINT NOT NULL, 
	operation TEXT NOT NULL, 
	data_change BOOLEAN NOT NULL, 
	data_version BIGINT NOT NULL, 
	ratified_ms BIGINT NOT NULL, 
	metrics TEXT NOT NULL, 
	tags TEXT NOT NULL, 
	content BLOB, 
	sha256 TEXT, 
	engine_info TEXT, 
	user_metadata TEXT, 
	num_rows BIGINT, 
	num_files BIGINT, 
	size_bytes BIGINT, 
	principal TEXT, 
	PRIMARY KEY (table_id, version), 
	FOREIGN KEY(table_id) REFERENCES cm_delta_tables (table_id)
);
INSERT INTO "cm_delta_commits" VALUES('8166e830-4487-4c51-af78-bc7f5712fb7f',0,'staged','00000000000000000000.json',200,77,'aacc4715-02a1-4895-858f-54bcf2407954',1000,'WRITE',1,0,1795817720570,'{"numFiles": "1"}','{}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'lake_owner');
INSERT INTO "cm_delta_commits" VALUES('46521ebc-218a-4c9c-9922-b4cdb2df8834',0,'staged','00000000000000000000.json',0,0,'5b81daa1-db63-4cae-a9e5-86a6d7372c82',1000,'WRITE',1,0,1795817723162,'{"numFiles": "1"}','{}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'lake_owner');
INSERT INTO "cm_delta_commits" VALUES('8166e830-4487-4c51-af78-bc7f5712fb7f',1,'inline','00000000000000000001.bdc430c3-3e01-400f-a69f-819b50f3bf32.json',215,5001,'190e6183-afe4-4350-a284-fa243a5068f3',1001,'WRITE',1,1,1795817723194,'{"numFiles": "1"}','{}',X'7B22636F6D6D6974496E666F223A207B2274786E4964223A202231393065363138332D616665342D343335302D613238342D666132343361353036386633222C2022696E436F6D6D697454696D657374616D70223A20313030312C20226F7065726174696F6E223A20225752495445227D7D0A7B22616464223A207B2270617468223A202261222C2022706172746974696F6E56616C756573223A207B7D2C202273697A65223A20312C20226D6F64696669636174696F6E54696D65223A20312C2022646174614368616E6765223A20747275657D7D0A','c7697bbc46c1b4136249537bd365b58bf4e473b3076ef8d470c8f78b728f9149',NULL,NULL,NULL,NULL,NULL,'lake_owner');
INSERT INTO "cm_delta_commits" VALUES('46521ebc-218a-4c9c-9922-b4cdb2df8834',1,'inline','00000000000000000001.dceb4c56-3814-42c3-844a-08e0047aee00.json',215,5001,'bc15a2f3-c85f-4376-a58d-2e5b0b4850c7',1001,'WRITE',1,1,1795817723254,'{"numFiles": "1"}','{}',X'7B22636F6D6D6974496E666F223A207B2274786E4964223A202262633135613266332D633835662D343337362D613538642D326535623062343835306337222C2022696E436F6D6D697454696D657374616D70223A20313030312C20226F7065726174696F6E223A20225752495445227D7D0A7B22616464223A207B2270617468223A202261222C2022706172746974696F6E56616C756573223A207B7D2C202273697A65223A20312C20226D6F64696669636174696F6E54696D65223A20312C2022646174614368616E6765223A20747275657D7D0A','999cbfaebd52fbadf43fae968ba7d12e640afc5aa8563dad76c29af6aa167e56',NULL,NULL,NULL,NULL,NULL,'lake_owner');
INSERT INTO "cm_delta_commits" VALUES('8166e830-4487-4c51-af78-bc7f5712fb7f',2,'inline','00000000000000000002.dbeee431-cd70-476d-9c2e-38308d695edd.json',215,5002,'58d4e4a7-0148-4f94-a0c2-555c16305118',1002,'WRITE',1,2,1795817723822,'{"numFiles": "1"}','{}',X'7B22636F6D6D6974496E666F223A207B2274786E4964223A202235386434653461372D303134382D346639342D613063322D353535633136333035313138222C2022696E436F6D6D697454696D657374616D70223A20313030322C20226F7065726174696F6E223A20225752495445227D7D0A7B22616464223A207B2270617468223A202261222C2022706172746974696F6E56616C756573223A207B7D2C202273697A65223A20312C20226D6F64696669636174696F6E54696D65223A20312C2022646174614368616E6765223A20747275657D7D0A','6caa5e3f3f025824986ce8da88963f602a34191099d51e56a0497832801fcf71',NULL,NULL,NULL,NULL,NULL,'load_orders');
CREATE TABLE cm_delta_definitions (
	table_id TEXT NOT NULL, 
	metadata TEXT, 
	protocol TEXT, 
	version BIGINT NOT NULL, 
	in_commit_timestamp BIGINT NOT NULL, 
	PRIMARY KEY (table_id), 
	FOREIGN KEY(table_id) REFERENCES cm_delta_tables (table_id)
);
INSERT INTO "cm_delta_definitions" VALUES('8166e830-4487-4c51-af78-bc7f5712fb7f','{"metaData":{"id":"5d1a","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\": \"struct\", \"fields\": [{\"name\": \"id\", \"type\": \"long\", \"nullable\": true, \"metadata\": {}}]}","partitionColumns":[],"configuration":{}}}','{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["catalogManaged"],"writerFeatures":["catalogManaged","inCommitTimestamp"]}}',0,1000);
CREATE TABLE cm_delta_feed (
	entry_id INTEGER NOT NULL, 
	position BIGINT, 
	kind TEXT NOT NULL, 
	at_ms BIGINT NOT NULL, 
	table_id TEXT, 
	version BIGINT, 
	scope TEXT, 
	actor TEXT, 
	details TEXT, 
	PRIMARY KEY (entry_id), 
	UNIQUE (position)
);
INSERT INTO "cm_delta_feed" VALUES(1,1,'TABLE_CREATED',1795817720570,'8166e830-4487-4c51-af78-bc7f5712fb7f',0,NULL,NULL,NULL);
INSERT INTO "cm_delta_feed" VALUES(2,2,'TABLE_CREATED',1795817723162,'46521ebc-218a-4c9c-9922-b4cdb2df8834',0,NULL,NULL,NULL);
INSERT INTO "cm_delta_feed" VALUES(3,3,'COMMIT',1795817723194,'8166e830-4487-4c51-af78-bc7f5712fb7f',1,NULL,NULL,NULL);
INSERT INTO "cm_delta_feed" VALUES(4,4,'COMMIT',1795817723254,'46521ebc-218a-4c9c-9922-b4cdb2df8834',1,NULL,NULL,NULL);
INSERT INTO "cm_delta_feed" VALUES(5,5,'POLICY_CHANGED',1795817723266,NULL,NULL,'*','lake_owner','{"action": "create role", "after": "pipelines"}');
INSERT INTO "cm_delta_feed" VALUES(6,6,'POLICY_CHANGED',1795817723266,NULL,NULL,'*','lake_owner','{"action": "add to role", "after": "load_orders in pipelines"}');
INSERT INTO "cm_delta_feed" VALUES(7,7,'POLICY_CHANGED',1795817723290,NULL,NULL,'*','lake_owner','{"action": "create role", "after": "everything"}');
INSERT INTO "cm_delta_feed" VALUES(8,8,'POLICY_CHANGED',1795817723290,NULL,NULL,'*','lake_owner','{"action": "add to role", "after": "pipelines in everything"}');
INSERT INTO "cm_delta_feed" VALUES(9,9,'POLICY_CHANGED',1795817723290,NULL,NULL,'*','lake_owner','{"action": "add to role", "after": "steward_rosa in everything"}');
INSERT INTO "cm_delta_feed" VALUES(10,10,'POLICY_CHANGED',1795817723334,NULL,NULL,'*','lake_owner','{"action": "grant", "after": "own to lake_owner"}');
INSERT INTO "cm_delta_feed" VALUES(11,11,'POLICY_CHANGED',1795817723334,NULL,NULL,'*','lake_owner','{"action": "enable grants", "before": "off", "after": "on"}');
INSERT INTO "cm_delta_feed" VALUES(12,12,'POLICY_CHANGED',1795817723622,NULL,NULL,'main.sales','lake_owner','{"action": "grant", "after": "modify to pipelines", "reason": "nightly load"}');
INSERT INTO "cm_delta_feed" VALUES(13,13,'POLICY_CHANGED',1795817723638,'46521ebc-218a-4c9c-9922-b4cdb2df8834',NULL,'main.staff.salaries','lake_owner','{"action": "grant", "after": "read to report_reader"}');
INSERT INTO "cm_delta_feed" VALUES(14,14,'POLICY_CHANGED',1795817723650,NULL,NULL,'main','lake_owner','{"action": "grant", "after": "read to public"}');
INSERT INTO "cm_delta_feed" VALUES(15,15,'POLICY_CHANGED',1795817723656,'8166e830-4487-4c51-af78-bc7f5712fb7f',NULL,'main.sales.orders','lake_owner','{"action": "transfer ownership", "before": "lake_owner", "after": "everything"}');
INSERT INTO "cm_delta_feed" VALUES(16,16,'POLICY_CHANGED',1795817723674,'46521ebc-218a-4c9c-9922-b4cdb2df8834',NULL,'main.staff.salaries','lake_owner','{"action": "transfer ownership", "before": "lake_owner", "after": "steward_rosa"}');
INSERT INTO "cm_delta_feed" VALUES(17,17,'POLICY_CHANGED',1795817723686,NULL,NULL,'main.sales','lake_owner','{"action": "set commit rule", "after": "keep: append_only(), approval", "reason": "ask first"}');
INSERT INTO "cm_delta_feed" VALUES(18,18,'POLICY_CHANGED',1795817723782,NULL,NULL,'main','lake_owner','{"action": "set commit rule", "after": "columns: schema_change(principals=(''everything'', ''report_reader'', ''public'')), approval"}');
INSERT INTO "cm_delta_feed" VALUES(19,19,'POLICY_CHANGED',1795817723797,NULL,NULL,'main','lake_owner','{"action": "set maintenance rule", "after": "allow DATA_CLEANUP for pipelines and report_reader"}');
INSERT INTO "cm_delta_feed" VALUES(20,20,'COMMIT',1795817723822,'8166e830-4487-4c51-af78-bc7f5712fb7f',2,NULL,NULL,NULL);
INSERT INTO "cm_delta_feed" VALUES(21,21,'POLICY_CHANGED',1795817723848,'8166e830-4487-4c51-af78-bc7f5712fb7f',NULL,'main.sales.orders','load_orders','{"action": "request approval", "after": "request 45f91ea37e3c", "reason": "it removes or changes rows, which the rule ''keep'' of main.sales (append_only, set by lake_owner) does not permit: ask first"}');
INSERT INTO "cm_delta_feed" VALUES(22,22,'LEASE_CHANGED',1795817723926,'8166e830-4487-4c51-af78-bc7f5712fb7f',NULL,'main.sales.orders','load_orders','{"action": "acquire lease", "after": "run for DATA_REORGANIZATION, token 1"}');
INSERT INTO "cm_delta_feed" VALUES(23,23,'PROPOSAL_REFUSED',1795817724028,'46521ebc-218a-4c9c-9922-b4cdb2df8834',NULL,'main.staff.salaries','load_orders','{"action": "commit", "reason": "The commit of version 2 to main.staff.salaries: the principal load_orders does not have the privilege append on main.staff.salaries"}');
INSERT INTO "cm_delta_feed" VALUES(24,24,'POLICY_CHANGED',1795817724063,'8166e830-4487-4c51-af78-bc7f5712fb7f',NULL,'main.sales.orders','lake_owner','{"action": "grant", "after": "alter to alter_ana"}');
CREATE TABLE cm_delta_feed_counter (
	counter_id INTEGER NOT NULL, 
	position BIGINT NOT NULL, 
	deleted_up_to BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (counter_id)
);
INSERT INTO "cm_delta_feed_counter" VALUES(1,24,0);
CREATE TABLE cm_delta_feed_waiters (
	waiter_id TEXT NOT NULL, 
	until_ms BIGINT NOT NULL, 
	PRIMARY KEY (waiter_id)
);
CREATE TABLE cm_delta_grants (
	grantee TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	privilege TEXT NOT NULL, 
	granted_by TEXT, 
	granted_ms BIGINT NOT NULL, 
	PRIMARY KEY (grantee, scope, privilege)
);
INSERT INTO "cm_delta_grants" VALUES('lake_owner','*','own','lake_owner',1795817723334);
INSERT INTO "cm_delta_grants" VALUES('pipelines','main.sales','modify','lake_owner',1795817723622);
INSERT INTO "cm_delta_grants" VALUES('report_reader','id:46521ebc-218a-4c9c-9922-b4cdb2df8834','read','lake_owner',1795817723638);
INSERT INTO "cm_delta_grants" VALUES('public','main','read','lake_owner',1795817723650);
INSERT INTO "cm_delta_grants" VALUES('alter_ana','id:8166e830-4487-4c51-af78-bc7f5712fb7f','alter','lake_owner',1795817724063);
CREATE TABLE cm_delta_maintenance_claims (
	table_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	token BIGINT DEFAULT 0 NOT NULL, 
	acquired_ms BIGINT DEFAULT 0 NOT NULL, 
	principal TEXT, 
	PRIMARY KEY (table_id), 
	FOREIGN KEY(table_id) REFERENCES cm_delta_tables (table_id)
);
INSERT INTO "cm_delta_maintenance_claims" VALUES('8166e830-4487-4c51-af78-bc7f5712fb7f','DATA_REORGANIZATION','run',3372617723926,1,1795817723926,'load_orders');
CREATE TABLE cm_delta_maintenance_rules (
	scope TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	allowed BOOLEAN NOT NULL, 
	reason TEXT NOT NULL, 
	principals TEXT DEFAULT '[]' NOT NULL, 
	windows TEXT DEFAULT '[]' NOT NULL, 
	min_retention_ms BIGINT, 
	max_files BIGINT, 
	max_bytes BIGINT, 
	set_by TEXT, 
	set_ms BIGINT, 
	PRIMARY KEY (scope, kind)
);
INSERT INTO "cm_delta_maintenance_rules" VALUES('main','DATA_CLEANUP',1,'','["pipelines", "report_reader"]','[]',NULL,NULL,NULL,'lake_owner',1795817723797);
CREATE TABLE cm_delta_registered_paths (
	catalog_name TEXT NOT NULL, 
	schema_name TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	location TEXT NOT NULL, 
	PRIMARY KEY (catalog_name, schema_name, table_name)
);
CREATE TABLE cm_delta_role_members (
	member TEXT NOT NULL, 
	role TEXT NOT NULL, 
	PRIMARY KEY (member, role), 
	FOREIGN KEY(role) REFERENCES cm_delta_roles (role)
);
INSERT INTO "cm_delta_role_members" VALUES('load_orders','pipelines');
INSERT INTO "cm_delta_role_members" VALUES('pipelines','everything');
INSERT INTO "cm_delta_role_members" VALUES('steward_rosa','everything');
CREATE TABLE cm_delta_roles (
	role TEXT NOT NULL, 
	PRIMARY KEY (role)
);
INSERT INTO "cm_delta_roles" VALUES('pipelines');
INSERT INTO "cm_delta_roles" VALUES('everything');
CREATE TABLE cm_delta_tables (
	table_id TEXT NOT NULL, 
	catalog_name TEXT NOT NULL, 
	schema_name TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	location TEXT NOT NULL, 
	state TEXT NOT NULL, 
	latest_version BIGINT NOT NULL, 
	published_version BIGINT NOT NULL, 
	latest_data_version BIGINT NOT NULL, 
	latest_in_commit_timestamp BIGINT NOT NULL, 
	reserved_ms BIGINT NOT NULL, 
	created_ms BIGINT, 
	dropped_ms BIGINT, 
	commit_policy TEXT, 
	barrier_after BIGINT, 
	content_from BIGINT DEFAULT 0 NOT NULL, 
	etag BIGINT DEFAULT 0 NOT NULL, 
	is_external BOOLEAN DEFAULT 0 NOT NULL, 
	lease_token BIGINT DEFAULT 0 NOT NULL, 
	owner TEXT, 
	PRIMARY KEY (table_id), 
	UNIQUE (location)
);
INSERT INTO "cm_delta_tables" VALUES('8166e830-4487-4c51-af78-bc7f5712fb7f','main','sales','orders','memory://w/main/sales/orders-433f006534a3','active',2,0,2,1002,1795817720467,1795817720570,NULL,NULL,NULL,1,0,0,1,'everything');
INSERT INTO "cm_delta_tables" VALUES('46521ebc-218a-4c9c-9922-b4cdb2df8834','main','staff','salaries','memory://w/main/staff/salaries-ff4356729f0f','active',1,0,1,1001,1795817723154,1795817723162,NULL,NULL,NULL,1,0,0,0,'steward_rosa');
CREATE TABLE cm_delta_version_pins (
	owner TEXT NOT NULL, 
	table_id TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	pinned_ms BIGINT NOT NULL, 
	principal TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (owner, table_id, principal), 
	FOREIGN KEY(table_id) REFERENCES cm_delta_tables (table_id)
);
INSERT INTO "cm_delta_version_pins" VALUES('run','8166e830-4487-4c51-af78-bc7f5712fb7f',2,1795817723910,'load_orders');
CREATE TABLE cm_delta_webhook_failures (
	name TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	body TEXT NOT NULL, 
	error TEXT NOT NULL, 
	failed_ms BIGINT NOT NULL, 
	PRIMARY KEY (name, position)
);
CREATE TABLE cm_delta_webhooks (
	name TEXT NOT NULL, 
	url TEXT NOT NULL, 
	secret TEXT NOT NULL, 
	kinds TEXT NOT NULL, 
	scopes TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	created_ms BIGINT NOT NULL, 
	leased_by TEXT, 
	leased_until_ms BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (name)
);
CREATE INDEX cm_delta_approvals_table ON cm_delta_approvals (table_id, state);
CREATE INDEX cm_delta_clones_source ON cm_delta_clones (source_id);
CREATE INDEX cm_delta_commits_inline ON cm_delta_commits (table_id, version) WHERE content IS NOT NULL;
CREATE INDEX cm_delta_feed_table ON cm_delta_feed (table_id, version);
CREATE INDEX cm_delta_feed_unplaced ON cm_delta_feed (entry_id) WHERE position IS NULL;
CREATE UNIQUE INDEX cm_delta_tables_active_name ON cm_delta_tables (catalog_name, schema_name, table_name) WHERE state = 'active';
CREATE INDEX ix_cm_delta_version_pins_pinned_ms ON cm_delta_version_pins (pinned_ms);
COMMIT;
