"""A database with its log, checkpoints, and Parquet and CSV beside it."""

import os
import duckdb


def connect():
    return duckdb.connect("data.db", config={"threads": 1})


c = connect()
c.execute(
    "create table t as select i, i * 7919 % 1000 as k, 'text ' || i as s from range(200000) r(i)"
)
c.execute("checkpoint")
c.execute("delete from t where k < 100")
c.execute("insert into t select i, -1, null from range(500) r(i)")
c.close()
c = connect()
c.execute("update t set s = 'new' where k = 500")
c.execute("begin")
c.execute("delete from t")
c.execute("rollback")
print(c.execute("select count(*), sum(i), sum(k), count(distinct s) from t").fetchall())
c.execute("copy (select * from t order by i, k) to 't.parquet' (format parquet)")
c.execute("copy (select * from t where k = 500 order by i) to 't.csv'")
print(c.execute("select count(*), max(s) from 't.parquet'").fetchall())
print(c.execute("select count(*) from read_csv('t.csv')").fetchall())
c.execute("vacuum")
c.close()
# Its blocks may have memory that was not cleared.
c = duckdb.connect("data.db", read_only=True)
print(c.execute("select k, count(*) from t group by k order by 2 desc, 1 limit 5").fetchall())
c.close()
os.remove("data.db")
