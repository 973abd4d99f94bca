-- What PostgreSQL needs beside the shared tables: numbers, the order of the feed, isolation of scopes, one-statement
-- appends. Run with the store's schema first in the search path; :schema and :owner are its name and its owner's.

-- Local numbers. They leave gaps where a transaction is rolled back, and order like commits only per session.
CREATE SEQUENCE agent_number;
CREATE SEQUENCE session_number;
CREATE SEQUENCE branch_number;
CREATE SEQUENCE checkpoint_number;
CREATE SEQUENCE operation_number;
CREATE SEQUENCE blob_number;
CREATE SEQUENCE feed_number;

-- An append leaves room for the next version of the session's row beside it, so that no index is written.
ALTER TABLE session SET (fillfactor = 60);
ALTER TABLE chunk ALTER data SET STORAGE EXTERNAL;  -- compressed already

-- Two calls with one idempotency key at once: the second one finds what the first one made.
CREATE UNIQUE INDEX idempotency_once ON idempotency (scope, session, ikey) WHERE branch = 0;

-- Transaction numbers mean something within one life of a cluster only: a restored or promoted one begins an epoch.
CREATE TABLE epoch (
  epoch   BIGINT PRIMARY KEY,
  cluster TEXT COLLATE "C" NOT NULL
);
INSERT INTO epoch SELECT 1, system_identifier || '/' || timeline_id FROM pg_control_system(), pg_control_checkpoint();
CREATE FUNCTION current_epoch() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE
  AS 'SELECT max(epoch) FROM :schema.epoch';

ALTER TABLE feed
  ADD epoch BIGINT NOT NULL DEFAULT :schema.current_epoch(),
  ADD xid   BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX feed_order ON feed (scope, epoch, xid, pos);
CREATE INDEX feed_agent ON feed (branch, pos) WHERE session = 0;

-- A transaction may get its number before it waits for a session, and then write to it behind one with a higher number.
-- So that the changes of one session or agent are in their order, a change counts with the number of the one before it
-- if that is higher: it was committed by then, so a reader that is shown the one is shown the other in the same look.
CREATE FUNCTION not_before(p_position BIGINT) RETURNS BIGINT LANGUAGE sql AS $$
  SELECT greatest(pg_current_xact_id()::text::bigint,
    (SELECT xid FROM :schema.feed WHERE pos = p_position AND epoch = :schema.current_epoch())) $$;
CREATE FUNCTION last_change(p_session BIGINT, p_agent BIGINT) RETURNS BIGINT LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN p_session > 0 THEN (SELECT updated FROM :schema.session WHERE sid = p_session)
    ELSE (SELECT pos FROM :schema.feed WHERE session = 0 AND branch = p_agent ORDER BY pos DESC LIMIT 1) END $$;

-- Scope: a transaction says whose data it is about: 's' and the scope. Without that it sees and writes nothing; the
-- owner may say '*' to see everything. An 's' is asked for, since any other letter would stand for the default scope ''.
CREATE FUNCTION own_scope() RETURNS TEXT LANGUAGE sql STABLE PARALLEL SAFE
  RETURN CASE WHEN starts_with(current_setting('takeback.scope', true), 's')
    THEN substr(current_setting('takeback.scope', true), 2) END;
ALTER TABLE detail ADD scope TEXT COLLATE "C" NOT NULL DEFAULT :schema.own_scope();
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['agent', 'agent_version', 'session', 'detail', 'branch', 'entry', 'call', 'link', 'lost',
    'checkpoint', 'idempotency', 'operation', 'blob', 'chunk', 'feed'] LOOP
    EXECUTE format('ALTER TABLE :schema.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE :schema.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format($p$CREATE POLICY own_scope ON :schema.%I
      USING (scope = :schema.own_scope())$p$, name);
    EXECUTE format($p$CREATE POLICY every_scope ON :schema.%I FOR SELECT TO :owner
      USING (current_setting('takeback.scope', true) = '*')$p$, name);
  END LOOP;
END $$;
