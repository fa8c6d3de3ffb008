package io.keymill.mybatis;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;

/** The table that an {@code INSERT} names, read from its SQL: comments, texts and quoted names are told apart, and nothing is guessed. */
final class InsertedTable {
    private static final Set<String> VERBS = new HashSet<>(Arrays.asList("INSERT", "REPLACE", "MERGE", "UPSERT"));
    /** What stands between the verb and the name. */
    private static final Set<String> BETWEEN = new HashSet<>(Arrays.asList("INTO", "IGNORE", "LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "OVERWRITE", "TABLE", "ONLY"));
    /** Words of statements whose table stands elsewhere. */
    private static final Set<String> ELSEWHERE = new HashSet<>(Arrays.asList("ALL", "FIRST", "TOP", "DIRECTORY", "SELECT", "VALUES"));

    private final String sql;
    private int at;
    /** Whether {@code #} begins a comment, as in MySQL; after the verb it may begin the name of a temporary table. */
    private boolean hash;

    private InsertedTable(String sql) {
        this.sql = sql;
    }

    /** The table's name as it is written, without its schema; null where it cannot be told. */
    static String of(String sql) {
        InsertedTable reader = new InsertedTable(sql);
        String word = reader.verb();
        if (word == null) {
            return null;
        }
        do {
            word = reader.next();
            if (word.equalsIgnoreCase("OR")) {
                reader.next();
            }
        } while (BETWEEN.contains(upper(word)) || word.equalsIgnoreCase("OR"));
        if (ELSEWHERE.contains(upper(word)) || !isName(word)) {
            return null;
        }
        String name = word;
        for (word = reader.next(); word.equals("."); word = reader.next()) {
            name = reader.next();
        }
        // A second statement may insert into another table.
        for (; !word.isEmpty(); word = reader.next()) {
            if (word.equals(";") && reader.verb() != null) {
                return null;
            }
        }
        return isName(name) ? unquoted(name) : null;
    }

    /** Goes to the first verb that stands in no parentheses. */
    private String verb() {
        int depth = 0;
        hash = true;
        for (String word = next(); !word.isEmpty(); word = next()) {
            if (word.equals("(")) {
                depth++;
            } else if (word.equals(")")) {
                depth--;
            } else if (depth == 0 && VERBS.contains(upper(word))) {
                hash = false;
                return word;
            }
        }
        return null;
    }

    private static String upper(String word) {
        return word.toUpperCase(Locale.ROOT);
    }

    private static boolean isName(String word) {
        char first = word.isEmpty() ? ' ' : word.charAt(0);
        return first == '"' || first == '`' || first == '[' || first == '#' || Character.isJavaIdentifierPart(first);
    }

    /** A quote in a name is written twice. */
    private static String unquoted(String name) {
        char first = name.charAt(0);
        char last = first == '[' ? ']' : first;
        if (first != '"' && first != '`' && first != '[' || name.length() < 2 || name.charAt(name.length() - 1) != last) {
            return name;
        }
        return name.substring(1, name.length() - 1).replace("" + last + last, "" + last);
    }

    /** The next word, quoted name, text or sign; empty at the end. */
    private String next() {
        skip();
        if (at >= sql.length()) {
            return "";
        }
        int start = at;
        char first = sql.charAt(at++);
        if (first == '\'' || first == '"' || first == '`' || first == '[') {
            quoted(first == '[' ? ']' : first);
        } else if (Character.isJavaIdentifierPart(first) || first == '#') {
            while (at < sql.length() && (Character.isJavaIdentifierPart(sql.charAt(at)) || sql.charAt(at) == '#')) {
                at++;
            }
        }
        return sql.substring(start, at);
    }

    private void quoted(char last) {
        while (at < sql.length()) {
            boolean end = sql.charAt(at++) == last;
            if (end && (at == sql.length() || sql.charAt(at) != last)) {
                return;
            }
            at += end ? 1 : 0;
        }
    }

    /** Blanks and comments. */
    private void skip() {
        while (at < sql.length()) {
            if (Character.isWhitespace(sql.charAt(at))) {
                at++;
            } else if (sql.startsWith("--", at) || hash && sql.charAt(at) == '#') {
                at = after("\n");
            } else if (sql.startsWith("/*", at)) {
                at = after("*/");
            } else {
                return;
            }
        }
    }

    private int after(String end) {
        int found = sql.indexOf(end, at + end.length());
        return found < 0 ? sql.length() : found + end.length();
    }
}
