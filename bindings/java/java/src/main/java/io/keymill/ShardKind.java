package io.keymill;

import java.util.Locale;

/** What a server speaks. */
enum ShardKind {
    MYSQL(1),
    POSTGRES(2),
    /** No rows are carried over there. */
    OTHER(0);

    /** What the native library calls it. */
    final int answer;

    ShardKind(int answer) {
        this.answer = answer;
    }

    /** By {@code DatabaseMetaData.getDatabaseProductName()}. */
    static ShardKind named(String product) {
        String name = product == null ? "" : product.toLowerCase(Locale.ROOT);
        if (name.contains("mysql") || name.contains("mariadb") || name.contains("tidb")) {
            return MYSQL;
        }
        return name.contains("postgresql") ? POSTGRES : OTHER;
    }
}
