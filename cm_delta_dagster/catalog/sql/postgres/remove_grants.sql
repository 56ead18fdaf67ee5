-- Undoes install_grants.sql: only the role that owns the tables can use the catalog, until it grants rights in the database.
DO $$
DECLARE
    entry record;
BEGIN
    FOR entry IN
        SELECT p.polname AS name, p.polrelid::regclass AS object FROM pg_catalog.pg_policy p
        JOIN pg_catalog.pg_class c ON c.oid = p.polrelid
        WHERE c.relnamespace = '{schema}'::regnamespace AND c.relname LIKE 'cm\_delta\_%' AND p.polname LIKE 'cm\_delta\_%'
    LOOP
        EXECUTE format('DROP POLICY %I ON %s', entry.name, entry.object);
    END LOOP;
    FOR entry IN
        SELECT c.oid::regclass AS object FROM pg_catalog.pg_class c
        WHERE c.relnamespace = '{schema}'::regnamespace AND c.relname LIKE 'cm\_delta\_%' AND c.relkind IN ('r', 'p')
    LOOP
        EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', entry.object);
        EXECUTE format('REVOKE ALL ON TABLE %s FROM PUBLIC', entry.object);
    END LOOP;
    FOR entry IN
        SELECT p.oid::regprocedure AS object FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname LIKE 'cm\_delta\_%'
    LOOP
        EXECUTE format('DROP FUNCTION %s', entry.object);
    END LOOP;
END $$;
