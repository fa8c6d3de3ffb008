"""A pool of connections of any driver, with the verbs that `keymill.Shards` knows."""


class Pool:
    """Connections that `connect` makes. Those that are free are used again."""

    def __init__(self, connect):
        self.connect, self.free = connect, []

    def getconn(self):
        try:
            return self.free.pop()
        except IndexError:
            return self.connect()

    def putconn(self, connection):
        # PyMySQL says whether it is open, psycopg whether it is closed.
        if getattr(connection, "open", True) and not getattr(connection, "closed", False):
            self.free.append(connection)
