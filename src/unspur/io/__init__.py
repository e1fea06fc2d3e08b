"""The artifact (one safetensors file, written atomically), and tables of rows in and out.

::

    artifact.py      arrays and JSON in one file; knows no removers
    table.py         Table: rows, names of features, labels; columns that hardly are features
    files.py         .npy .npz .csv .parquet or an embedding store -> Table, and back
    parquet.py       Parquet files, in memory, in their files, or cleaned a piece at a time
    dask_tables.py   rows that the workers of a Dask cluster read
"""
