package seed;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.text.DecimalFormat;
import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The hand-written KeyFactory that keymill replaces, rebuilt from the article it comes from, with what the article leaves
 * out filled in and its date part kept per range: the old node of the tests, the rival of the benches. Its statements,
 * its monitor and its connection for each range are the article's.
 */
public final class KeyFactory {
    private static final Map<String, KeyInfo> KEYS = new ConcurrentHashMap<>(50);

    /** Where the ranges come from; null: from memory, for benches without a server. */
    public static volatile String url;

    private KeyFactory() {}

    public static String getSerialNoByDS(String table, String column, String dateFmt, String noFmt, int cacheSize)
            throws Exception {
        String key = table + "@" + column + "@" + dateFmt + "@" + noFmt;
        KeyInfo info = KEYS.get(key);
        if (info == null) {
            KEYS.putIfAbsent(key, new KeyInfo(table, column, dateFmt, noFmt, cacheSize));
            info = KEYS.get(key);
        }
        return info.getNextSerialNo();
    }

    private static final class KeyInfo {
        private final String table;
        private final String column;
        private final String dateFmt;
        private final String noFmt;
        private final int cacheSize;
        private final DecimalFormat df;
        private String prefix;
        private long iMaxNo;
        private long iCurrent;
        private long inMemory;

        KeyInfo(String table, String column, String dateFmt, String noFmt, int cacheSize) {
            this.table = table.toUpperCase();
            this.column = column.toUpperCase();
            this.dateFmt = dateFmt;
            this.noFmt = noFmt;
            this.cacheSize = cacheSize;
            this.df = new DecimalFormat(noFmt);
        }

        synchronized String getNextSerialNo() throws Exception {
            if (prefix == null || iCurrent >= cacheSize) {
                reserve();
            }
            iCurrent++;
            return prefix + df.format(iMaxNo + iCurrent);
        }

        private void reserve() throws SQLException {
            String today = new SimpleDateFormat(dateFmt).format(new Date());
            String url = KeyFactory.url;
            long start = url == null ? inMemory : reserve(url, today);
            inMemory = start + cacheSize;
            iMaxNo = start;
            iCurrent = 0;
            prefix = today;
        }

        private long reserve(String url, String today) throws SQLException {
            for (int attempt = 0; ; attempt++) {
                try (Connection con = DriverManager.getConnection(url)) {
                    con.setAutoCommit(false);
                    String old = query(con);
                    if (old == null) {
                        insert(con);
                        old = "INIT";
                    }
                    long start = old.startsWith(today) ? Long.parseLong(old.substring(today.length())) : 0;
                    if (update(con, today + df.format(start + cacheSize), old) == 1) {
                        con.commit();
                        return start;
                    }
                    con.rollback();
                } catch (SQLException e) {
                    // Two first uses deadlock; the article recurses here.
                    if (attempt >= 10) {
                        throw e;
                    }
                }
            }
        }

        private String query(Connection con) throws SQLException {
            try (PreparedStatement select = con.prepareStatement("select MAXSERIALNO from key_producer"
                    + " where TABLENAME=? and COLUMNNAME=? and DATEFMT=? and NOFMT=? for update")) {
                bind(select, 1);
                try (ResultSet row = select.executeQuery()) {
                    return row.next() ? (row.getString(1) == null ? "INIT" : row.getString(1)) : null;
                }
            }
        }

        private void insert(Connection con) throws SQLException {
            try (PreparedStatement insert = con.prepareStatement("insert into key_producer"
                    + " (TABLENAME,COLUMNNAME,DATEFMT,NOFMT,MAXSERIALNO) values (?,?,?,?,'INIT')")) {
                bind(insert, 1);
                insert.executeUpdate();
            }
        }

        private int update(Connection con, String now, String old) throws SQLException {
            try (PreparedStatement update = con.prepareStatement("update key_producer set MAXSERIALNO=?"
                    + " where TABLENAME=? and COLUMNNAME=? and DATEFMT=? and NOFMT=? and MAXSERIALNO=?")) {
                update.setString(1, now);
                bind(update, 2);
                update.setString(6, old);
                return update.executeUpdate();
            }
        }

        private void bind(PreparedStatement statement, int at) throws SQLException {
            statement.setString(at, table);
            statement.setString(at + 1, column);
            statement.setString(at + 2, dateFmt);
            statement.setString(at + 3, noFmt);
        }
    }
}
