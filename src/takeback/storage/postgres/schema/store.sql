-- What PostgreSQL needs beside the tables: numbers, the order of the feed, isolation of scopes.
-- Run with the store's schema first in the search path; :schema is its name.

-- Local numbers. They leave gaps where a transaction is rolled back, and order like commits only per session.
CREATE SEQUENCE agent_number;
CREATE SEQUENCE session_number;
CREATE SEQUENCE branch_number;
CREATE SEQUENCE checkpoint_number;
CREATE SEQUENCE operation_number;
CREATE SEQUENCE blob_number;
CREATE SEQUENCE feed_number;
CREATE SEQUENCE agent_checkpoint_number;
CREATE SEQUENCE workspace_number;
CREATE SEQUENCE document_number;

-- An append changes no column of an index, so with room on the page the new version of the session's row stays there.
-- The rows of its tags and metadata stay there too when it gets another rank.
ALTER TABLE session SET (fillfactor = 85);
ALTER TABLE session_tag SET (fillfactor = 85);
ALTER TABLE session_meta SET (fillfactor = 85);
ALTER TABLE chunk ALTER data SET STORAGE EXTERNAL;  -- compressed already
ALTER TABLE entry ALTER rest SET STORAGE MAIN;      -- small, and mostly random

-- Two calls with one idempotency key at once: the second one finds what the first one made.
CREATE UNIQUE INDEX idempotency_once ON idempotency (scope, session, ikey) WHERE branch = 0;

-- Transaction numbers mean something within one life of a cluster only: a restored or promoted one begins an epoch.
CREATE TABLE epoch (
  epoch   INTEGER PRIMARY KEY,
  cluster TEXT COLLATE "C" NOT NULL
);
INSERT INTO epoch SELECT 1, system_identifier || '/' || timeline_id FROM pg_control_system(), pg_control_checkpoint();
CREATE FUNCTION current_epoch() RETURNS INTEGER LANGUAGE sql STABLE PARALLEL SAFE
  AS 'SELECT max(epoch) FROM :schema.epoch';

-- The order of the feed is its key. Each session, agent and document remembers the key of its last change; one that is
-- new begins with the transaction that makes it, whatever that one tells of it, and when. The epoch hardly ever changes,
-- so in the log of an update it is left out as the end of the row.
ALTER TABLE feed ADD epoch INTEGER NOT NULL, ADD xid BIGINT NOT NULL;
ALTER TABLE feed DROP CONSTRAINT feed_pkey, ADD PRIMARY KEY (scope, epoch, xid, pos);
ALTER TABLE session ADD xid BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
  ADD epoch INTEGER NOT NULL DEFAULT :schema.current_epoch();
ALTER TABLE agent ADD xid BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
  ADD epoch INTEGER NOT NULL DEFAULT :schema.current_epoch();
ALTER TABLE document ADD xid BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
  ADD epoch INTEGER NOT NULL DEFAULT :schema.current_epoch();

-- A transaction may get its number before it waits for a session, and then write to it behind one with a higher number.
-- So that the changes of one session, agent or document are in their order, a change counts with the number of the one
-- before it if that is higher: it was committed by then, so a reader that is shown the one is shown the other at the
-- same time.
CREATE FUNCTION own_order(p_epoch INTEGER, p_xid BIGINT, OUT epoch INTEGER, OUT xid BIGINT) LANGUAGE sql AS $$
  SELECT c.now, CASE WHEN p_epoch = c.now THEN greatest(p_xid, pg_current_xact_id()::text::bigint)
    ELSE pg_current_xact_id()::text::bigint END FROM (SELECT :schema.current_epoch() AS now) c $$;
CREATE FUNCTION change_order(p_scope TEXT, p_session BIGINT, p_other BIGINT, OUT epoch INTEGER, OUT xid BIGINT)
  LANGUAGE plpgsql AS $$
DECLARE
  v RECORD;
BEGIN
  IF p_session > 0 THEN
    SELECT s.epoch, s.xid INTO v FROM :schema.session s WHERE s.scope = p_scope AND s.sid = p_session;
    SELECT n.* INTO epoch, xid FROM :schema.own_order(v.epoch, v.xid) n;
  ELSIF p_session < 0 THEN
    UPDATE :schema.document d SET (epoch, xid) = (SELECT n.* FROM :schema.own_order(d.epoch, d.xid) n)
      WHERE d.scope = p_scope AND d.did = p_other RETURNING d.epoch, d.xid INTO epoch, xid;
  ELSE  -- a checkpoint of an agent is a change that writes nothing else of its row
    UPDATE :schema.agent a SET (epoch, xid) = (SELECT n.* FROM :schema.own_order(a.epoch, a.xid) n)
      WHERE a.scope = p_scope AND a.aid = p_other RETURNING a.epoch, a.xid INTO epoch, xid;
  END IF;
END $$;

-- Scope: a transaction says whose data it is about: 's' and the scope. Without that it sees and writes nothing; the
-- owner may say '*' to see everything. An 's' is asked for, since any other letter would stand for the default scope ''.
CREATE FUNCTION own_scope() RETURNS TEXT LANGUAGE sql STABLE PARALLEL SAFE
  RETURN CASE WHEN starts_with(current_setting('takeback.scope', true), 's')
    THEN substr(current_setting('takeback.scope', true), 2) END;
