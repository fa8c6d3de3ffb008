package io.keymill.mybatis;

import java.lang.reflect.Field;
import java.util.List;
import org.apache.ibatis.mapping.SqlSource;
import org.apache.ibatis.scripting.xmltags.ChooseSqlNode;
import org.apache.ibatis.scripting.xmltags.DynamicSqlSource;
import org.apache.ibatis.scripting.xmltags.ForEachSqlNode;
import org.apache.ibatis.scripting.xmltags.IfSqlNode;
import org.apache.ibatis.scripting.xmltags.MixedSqlNode;
import org.apache.ibatis.scripting.xmltags.SqlNode;
import org.apache.ibatis.scripting.xmltags.StaticTextSqlNode;
import org.apache.ibatis.scripting.xmltags.TrimSqlNode;

/**
 * The table of a statement with parts such as {@code <foreach>}, where no parameter can change it: the text before the first part names
 * it, nothing is put in by <code>${}</code>, and no second statement can follow. To read it from the SQL, MyBatis would have to make the
 * SQL of each execution twice.
 */
final class FixedTable {
    /** What would go on with the name, also out of a comment that the text leaves open. */
    private static final String[] MORE = {".x", "\n.x", "*/.x"};

    private FixedTable() {}

    /** Null where the table may differ, and where this version of MyBatis keeps its parts otherwise. */
    static String of(SqlSource source) {
        if (source.getClass() != DynamicSqlSource.class) {
            return null;
        }
        try {
            SqlNode root = (SqlNode) get(source, DynamicSqlSource.class, "rootSqlNode");
            List<?> parts = root instanceof MixedSqlNode ? (List<?>) get(root, MixedSqlNode.class, "contents") : null;
            if (parts == null || parts.isEmpty() || !(parts.get(0) instanceof StaticTextSqlNode) || !isOneStatement(root)) {
                return null;
            }
            String head = (String) get(parts.get(0), StaticTextSqlNode.class, "text");
            String table = InsertedTable.of(head);
            for (String more : MORE) {
                if (table == null || !table.equals(InsertedTable.of(head + more))) {
                    return null;
                }
            }
            return table;
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    private static boolean isOneStatement(Object node) throws ReflectiveOperationException {
        if (node == null) {
            return true;
        } else if (node instanceof List) {
            for (Object each : (List<?>) node) {
                if (!isOneStatement(each)) {
                    return false;
                }
            }
            return true;
        } else if (node instanceof String) {
            return ((String) node).indexOf(';') < 0;
        } else if (node instanceof StaticTextSqlNode) {
            return areOneStatement(node, StaticTextSqlNode.class, "text");
        } else if (node instanceof MixedSqlNode) {
            return areOneStatement(node, MixedSqlNode.class, "contents");
        } else if (node instanceof IfSqlNode) {
            return areOneStatement(node, IfSqlNode.class, "contents");
        } else if (node instanceof ForEachSqlNode) {
            return areOneStatement(node, ForEachSqlNode.class, "contents", "open", "close", "separator");
        } else if (node instanceof TrimSqlNode) {
            return areOneStatement(node, TrimSqlNode.class, "contents", "prefix", "suffix");
        } else if (node instanceof ChooseSqlNode) {
            return areOneStatement(node, ChooseSqlNode.class, "ifSqlNodes", "defaultSqlNode");
        }
        return false;
    }

    private static boolean areOneStatement(Object node, Class<?> type, String... fields) throws ReflectiveOperationException {
        for (String field : fields) {
            if (!isOneStatement(get(node, type, field))) {
                return false;
            }
        }
        return true;
    }

    private static Object get(Object object, Class<?> type, String name) throws ReflectiveOperationException {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }
}
