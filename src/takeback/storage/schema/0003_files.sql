-- Files and agents as a whole: what a workspace looked like when it was last seen, rewinds under way,
-- checkpoints of agents.

CREATE TABLE seen (                     -- a directory of a workspace as it was last seen; only saves reading files again
  scope        TEXT NOT NULL,
  place        TEXT NOT NULL,           -- which workspace, on which machine; '': how often contents were swept out
  dir          BLOB NOT NULL,           -- its path in the workspace
  doc          BLOB NOT NULL,           -- names with sizes, times and contents (SPEC.md, "Files")
  chk          INTEGER NOT NULL,        -- all columns above
  PRIMARY KEY (scope, place, dir)
) STRICT, WITHOUT ROWID;

CREATE TABLE journal (                  -- a change of files under way: all of it is taken back unless it became an operation
  scope        TEXT NOT NULL,
  place        TEXT NOT NULL,           -- one at a time in a workspace
  session      INTEGER NOT NULL REFERENCES session (sid),
  id           TEXT NOT NULL,
  at_ms        INTEGER NOT NULL,
  holder       BLOB NOT NULL,           -- who does it, as JSON, as in lease
  root         BLOB NOT NULL,           -- the path of the workspace
  steps        BLOB NOT NULL,           -- path, what was there, what shall be there (SPEC.md, "Files")
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_checkpoint (
  acid         INTEGER PRIMARY KEY,     -- local to this store
  scope        TEXT NOT NULL,
  id           TEXT NOT NULL,
  agent        INTEGER NOT NULL REFERENCES agent (aid),
  name         TEXT NOT NULL,
  description  TEXT,
  type         TEXT NOT NULL,           -- 'manual', 'automatic', 'pre-operation' or 'recovery'
  at_ms        INTEGER NOT NULL,
  version      INTEGER NOT NULL,        -- of the agent: its fields and its state
  fields       BLOB NOT NULL,           -- the agent's fields then
  position     INTEGER NOT NULL,        -- sessions that changed behind it are pinned by the next checkpoint
  sessions     INTEGER NOT NULL,        -- how many it covers
  checksum     BLOB NOT NULL,           -- over its pins and the agent (SPEC.md, "Checkpoints of agents")
  chk          INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX agent_checkpoint_id ON agent_checkpoint (scope, id);
CREATE INDEX agent_checkpoint_agent ON agent_checkpoint (scope, agent, acid);

CREATE TABLE pin (                      -- where a session was at a checkpoint of its agent; only what changed since the one before
  scope        TEXT NOT NULL,
  session      INTEGER NOT NULL REFERENCES session (sid),
  checkpoint   INTEGER NOT NULL REFERENCES agent_checkpoint (acid),
  branch       INTEGER NOT NULL REFERENCES branch (bid),
  seq          INTEGER NOT NULL,
  attached     INTEGER NOT NULL,
  hash         BLOB NOT NULL,           -- of the entry there
  hidden       INTEGER NOT NULL,        -- 1: it was in the trash
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, session, checkpoint)
) STRICT, WITHOUT ROWID;
CREATE INDEX pin_checkpoint ON pin (checkpoint);
