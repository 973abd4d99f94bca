-- What PostgreSQL needs beside the shared tables: isolation of scopes for what is under way.
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['lease', 'stream', 'delta', 'inbox'] LOOP
    EXECUTE format('ALTER TABLE :schema.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE :schema.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY own_scope ON :schema.%I
      USING (scope = :schema.own_scope())$p$, name);
    EXECUTE format($p$CREATE POLICY every_scope ON :schema.%I FOR SELECT TO :owner
      USING (current_setting('takeback.scope', true) = '*')$p$, name);
  END LOOP;
END $$;
