import java.io.PrintStream;
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import me.ahoo.cosid.segment.IdSegmentDistributor;
import me.ahoo.cosid.segment.SegmentChainId;

/**
 * A node of CosId on the row that keymill shares: CONFIG NAMESPACE NAME STEP COUNT, an id a line. Segments, their chain and
 * its prefetching are CosId's own; the row is moved on by the two statements of its cosid-jdbc, in one transaction.
 */
public class CosidNode {
    private static final String INCREMENT =
            "update cosid set last_max_id=(last_max_id + ?),last_fetch_time=unix_timestamp() where name = ?";
    private static final String FETCH = "select last_max_id from cosid where name = ?";

    public static void main(String[] args) throws Exception {
        URI server = new URI(args[0]);
        String[] user = server.getUserInfo().split(":");
        Connection connection = DriverManager.getConnection(
                "jdbc:mariadb://" + server.getHost() + ":" + server.getPort() + server.getPath(), user[0], user[1]);
        connection.setAutoCommit(false);
        SegmentChainId ids = new SegmentChainId(new Distributor(connection, args[1], args[2], Long.parseLong(args[3])));
        try (PrintStream out = new PrintStream(System.out, false)) {
            for (long left = Long.parseLong(args[4]); left > 0; left--) out.println(ids.generate());
        }
        // Its prefetching threads are no daemons.
        System.exit(0);
    }

    private static final class Distributor implements IdSegmentDistributor {
        private final Connection connection;
        private final String namespace;
        private final String name;
        private final long step;

        Distributor(Connection connection, String namespace, String name, long step) {
            this.connection = connection;
            this.namespace = namespace;
            this.name = name;
            this.step = step;
        }

        @Override public String getNamespace() { return namespace; }

        @Override public String getName() { return name; }

        @Override public long getStep() { return step; }

        @Override public synchronized long nextMaxId(long step) {
            try (PreparedStatement increment = connection.prepareStatement(INCREMENT);
                    PreparedStatement fetch = connection.prepareStatement(FETCH)) {
                increment.setLong(1, step);
                increment.setString(2, getNamespacedName());
                if (increment.executeUpdate() != 1) throw new IllegalStateException("no row " + getNamespacedName());
                fetch.setString(1, getNamespacedName());
                ResultSet found = fetch.executeQuery();
                if (!found.next()) throw new IllegalStateException("no row " + getNamespacedName());
                long maximum = found.getLong(1);
                connection.commit();
                return maximum;
            } catch (SQLException broken) {
                throw new IllegalStateException(broken);
            }
        }
    }
}
