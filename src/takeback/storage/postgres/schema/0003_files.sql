-- What PostgreSQL needs beside the shared tables: numbers, and isolation of scopes.
CREATE SEQUENCE agent_checkpoint_number;
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['seen', 'journal', 'agent_checkpoint', 'pin'] LOOP
    EXECUTE format('ALTER TABLE :schema.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE :schema.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY own_scope ON :schema.%I
      USING (scope = :schema.own_scope())$p$, name);
    EXECUTE format($p$CREATE POLICY every_scope ON :schema.%I FOR SELECT TO :owner
      USING (current_setting('takeback.scope', true) = '*')$p$, name);
  END LOOP;
END $$;
