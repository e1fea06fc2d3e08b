"""The artifact (one safetensors file, written atomically), and tables of rows in and out.

::

    artifact.py                                   arrays and JSON in one file; knows no removers
    reading.py · npz.py · parquet.py · table.py   .npy .npz .csv .parquet or a store -> Table
    features.py                                   columns that hardly are features
    writing.py · streaming.py · clustered.py      rows written back; Parquet of any size; rows that Dask workers read
"""
