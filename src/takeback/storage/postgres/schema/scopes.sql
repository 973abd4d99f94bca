-- The tables whose rows belong to a scope (:tables) show a transaction those of its own only (own_scope), their owner
-- included. Run with a new store and behind every migration, so that a table that one adds is no exception.
DO $$
DECLARE
  name text;
  owner text;
BEGIN
  FOREACH name IN ARRAY ARRAY[:tables] LOOP
    EXECUTE format('ALTER TABLE :schema.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
    CONTINUE WHEN EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = format(':schema.%I', name)::regclass);
    SELECT pg_get_userbyid(relowner) INTO owner FROM pg_class WHERE oid = format(':schema.%I', name)::regclass;
    EXECUTE format('CREATE POLICY own_scope ON :schema.%I USING (scope = :schema.own_scope())', name);
    EXECUTE format($p$CREATE POLICY every_scope ON :schema.%I FOR SELECT TO %I
      USING (current_setting('takeback.scope', true) = '*')$p$, name, owner);
  END LOOP;
END $$;
