"""The artifact (one safetensors file, written atomically), and tables of rows in and out.

::

    artifact.py      arrays and JSON in one safetensors file
    table.py         Table: rows, feature names and labels; warnings about columns that may not be features
    files.py         .npy, .npz, .csv, .tsv, Parquet or an embedding store -> Table, and back
    parquet.py       Parquet files: read, left in place with a memory budget, or cleaned piece by piece
    dask_tables.py   tables whose rows are read by the workers of a Dask cluster
"""
