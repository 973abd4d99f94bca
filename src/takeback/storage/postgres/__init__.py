"""PostgreSQL through psycopg 3: the same operations, run at once by any number of processes on many machines."""
