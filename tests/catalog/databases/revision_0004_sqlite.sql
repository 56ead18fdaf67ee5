BEGIN TRANSACTION;
CREATE TABLE cm_delta_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT cm_delta_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "cm_delta_alembic_version" VALUES('0004');
CREATE TABLE cm_delta_catalog (
	row_id INTEGER NOT NULL, 
	catalog_id TEXT NOT NULL, 
	PRIMARY KEY (row_id)
);
INSERT INTO "cm_delta_catalog" VALUES(1,'6dff19d7-8431-4964-8e60-525bb70e98b4');
CREATE TABLE cm_delta_commit_policies (
	scope TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	PRIMARY KEY (scope)
);
INSERT INTO "cm_delta_commit_policies" VALUES('main.staff','inline');
CREATE TABLE cm_delta_commits (
	table_id TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	position BIGINT NOT NULL, 
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
	tags TEXT NOT NULL, content BLOB, 
	PRIMARY KEY (table_id, version), 
	FOREIGN KEY(table_id) REFERENCES cm_delta_tables (table_id), 
	UNIQUE (position)
);
INSERT INTO "cm_delta_commits" VALUES('0ebd2018-e964-4f32-bcdf-3de723d0782f',0,1,'staged','00000000000000000000.json',0,0,'cb647432-84e2-4b8d-a47f-9fbf46f08805',1000,'WRITE',1,0,1763800000000,'{"numFiles": "1"}','{}',NULL);
INSERT INTO "cm_delta_commits" VALUES('8202610e-0335-4b4c-8043-24429318ef5c',0,2,'staged','00000000000000000000.json',0,0,'cdf9c266-f799-4f74-9251-7935b0e587ba',1000,'WRITE',1,0,1763800000000,'{"numFiles": "1"}','{}',NULL);
INSERT INTO "cm_delta_commits" VALUES('0ebd2018-e964-4f32-bcdf-3de723d0782f',1,3,'staged','00000000000000000001.36ea1984-a4ae-4a56-90fa-bce1d09bc343.json',101,5001,'0931e7c5-e1da-4448-b615-6851c2904147',1001,'WRITE',1,1,1763800001000,'{"numFiles": "1"}','{}',NULL);
INSERT INTO "cm_delta_commits" VALUES('8202610e-0335-4b4c-8043-24429318ef5c',1,4,'inline','00000000000000000001.2d1af1b5-9661-4a6f-bbc9-919d39861a78.json',93,5001,'69f426c5-3cde-49df-9b9a-248b612d181d',1001,'WRITE',1,1,1763800001000,'{"numFiles": "1"}','{}',X'7B22636F6D6D6974496E666F223A207B2274786E4964223A202236396634323663352D336364652D343964662D396239612D323438623631326431383164222C2022696E436F6D6D697454696D657374616D70223A20313030317D7D0A');
INSERT INTO "cm_delta_commits" VALUES('0ebd2018-e964-4f32-bcdf-3de723d0782f',2,5,'staged','00000000000000000002.bb15fd9b-3e6f-41cd-a351-09298bb8b911.json',102,5002,'8bdbd047-e202-4238-81da-7acca39ef269',1002,'WRITE',1,2,1763800002000,'{"numFiles": "1"}','{}',NULL);
INSERT INTO "cm_delta_commits" VALUES('8202610e-0335-4b4c-8043-24429318ef5c',2,6,'inline','00000000000000000002.dd6e3a29-b87c-4087-82db-e59f85062eab.json',93,5002,'fde74c5a-a6d3-4ca9-9632-c23f9cbe4bf2',1002,'WRITE',1,2,1763800002000,'{"numFiles": "1"}','{}',X'7B22636F6D6D6974496E666F223A207B2274786E4964223A202266646537346335612D613664332D346361392D393633322D633233663963626534626632222C2022696E436F6D6D697454696D657374616D70223A20313030327D7D0A');
INSERT INTO "cm_delta_commits" VALUES('984e2408-db48-4bdf-a1d6-0c185df01fa7',0,7,'staged','00000000000000000000.json',0,0,'257b8dbf-6989-4fd3-b0b3-742fc0a3744a',1000,'WRITE',1,0,1763800002000,'{"numFiles": "1"}','{}',NULL);
INSERT INTO "cm_delta_commits" VALUES('52d9087f-6e7e-473d-b02a-93d243ea28ff',0,8,'staged','00000000000000000000.json',0,0,'387f4794-c871-4cd5-80c3-22e53bfcc82f',1000,'WRITE',1,0,1763800002000,'{"numFiles": "1"}','{}',NULL);
CREATE TABLE cm_delta_definitions (
	table_id TEXT NOT NULL, 
	metadata TEXT, 
	protocol TEXT, 
	version BIGINT NOT NULL, 
	in_commit_timestamp BIGINT NOT NULL, 
	PRIMARY KEY (table_id), 
	FOREIGN KEY(table_id) REFERENCES cm_delta_tables (table_id)
);
INSERT INTO "cm_delta_definitions" VALUES('0ebd2018-e964-4f32-bcdf-3de723d0782f','{"metaData":{"id":"5d1a","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\": \"struct\", \"fields\": [{\"name\": \"id\", \"type\": \"long\", \"nullable\": true, \"metadata\": {}}]}","partitionColumns":[],"configuration":{}}}','{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["catalogManaged"],"writerFeatures":["catalogManaged","inCommitTimestamp"]}}',2,1002);
CREATE TABLE cm_delta_feed_counter (
	counter_id INTEGER NOT NULL, 
	position BIGINT NOT NULL, 
	PRIMARY KEY (counter_id)
);
INSERT INTO "cm_delta_feed_counter" VALUES(1,8);
CREATE TABLE cm_delta_maintenance_claims (
	table_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	PRIMARY KEY (table_id), 
	FOREIGN KEY(table_id) REFERENCES cm_delta_tables (table_id)
);
INSERT INTO "cm_delta_maintenance_claims" VALUES('0ebd2018-e964-4f32-bcdf-3de723d0782f','CHECKPOINT','run',2763800002000);
CREATE TABLE cm_delta_maintenance_rules (
	scope TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	allowed BOOLEAN NOT NULL, 
	reason TEXT NOT NULL, 
	PRIMARY KEY (scope, kind)
);
INSERT INTO "cm_delta_maintenance_rules" VALUES('main','DATA_CLEANUP',0,'kept for the audit');
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
	dropped_ms BIGINT, commit_policy TEXT, barrier_after BIGINT, content_from BIGINT DEFAULT 0 NOT NULL, etag BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (table_id), 
	UNIQUE (location)
);
INSERT INTO "cm_delta_tables" VALUES('0ebd2018-e964-4f32-bcdf-3de723d0782f','main','sales','orders','memory://w/main/sales/orders-12b15f75ddba','active',2,1,2,1002,1763800000000,1763800000000,NULL,NULL,NULL,3,0);
INSERT INTO "cm_delta_tables" VALUES('8202610e-0335-4b4c-8043-24429318ef5c','main','staff','salaries','memory://w/main/staff/salaries-05676514a583','active',2,1,2,1002,1763800000000,1763800000000,NULL,NULL,NULL,1,0);
INSERT INTO "cm_delta_tables" VALUES('984e2408-db48-4bdf-a1d6-0c185df01fa7','main','sales','old','memory://w/main/sales/old-f62fa509a64d','dropped',0,0,0,1000,1763800002000,1763800002000,1763800002000,NULL,NULL,1,0);
INSERT INTO "cm_delta_tables" VALUES('c99fd6b0-b563-47bc-b92e-5745766b1c7b','spare','sales','reserved','memory://w/spare/sales/reserved-3f0942930e93','staging',-1,-1,-1,-1,1763800002000,NULL,NULL,NULL,NULL,0,0);
INSERT INTO "cm_delta_tables" VALUES('52d9087f-6e7e-473d-b02a-93d243ea28ff','Lake','Sales','renamed','memory://w/main/sales/first-f08603ec08f1','active',0,0,0,1000,1763800002000,1763800002000,NULL,NULL,NULL,1,1);
CREATE TABLE cm_delta_version_pins (
	owner TEXT NOT NULL, 
	table_id TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	pinned_ms BIGINT NOT NULL, 
	PRIMARY KEY (owner, table_id), 
	FOREIGN KEY(table_id) REFERENCES cm_delta_tables (table_id)
);
INSERT INTO "cm_delta_version_pins" VALUES('run','0ebd2018-e964-4f32-bcdf-3de723d0782f',1,1763800002000);
CREATE UNIQUE INDEX cm_delta_tables_active_name ON cm_delta_tables (catalog_name, schema_name, table_name) WHERE state = 'active';
CREATE INDEX ix_cm_delta_version_pins_pinned_ms ON cm_delta_version_pins (pinned_ms);
CREATE INDEX cm_delta_commits_inline ON cm_delta_commits (table_id, version) WHERE content IS NOT NULL;
COMMIT;
