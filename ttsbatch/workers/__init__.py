"""A process per GPU: the loop that feeds a device shares its interpreter with nothing else.

Reading, checks, retries and writing cost the run's own process about a millisecond a row, and a GPU
makes 450 rows a second: in one interpreter they would hold up the launches.
"""
