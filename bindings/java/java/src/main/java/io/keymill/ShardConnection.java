package io.keymill;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;

/**
 * The connection as the work sees it: it cannot end the transaction, because the lock of the id would be gone before the other shard is written
 * to, and it cannot be used after the work.
 *
 * <p>A call that is refused makes the write fail, also where the work or a library swallows the exception: something was to be undone, and is
 * not.
 */
final class ShardConnection implements InvocationHandler, AutoCloseable {
    private static final String OVER = "the work on the connection of a shard is over; it is used within `write` or `read` only";

    private final Connection connection;
    private volatile boolean isOver;
    private volatile String refused;

    ShardConnection(Connection connection) {
        this.connection = connection;
    }

    Connection seen() {
        return (Connection) Proxy.newProxyInstance(ShardConnection.class.getClassLoader(), new Class<?>[] {Connection.class}, this);
    }

    /** What the work did that it must not do; null: nothing. */
    String refusal() {
        return refused;
    }

    /** The work is over. */
    @Override
    public void close() {
        isOver = true;
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        int count = arguments == null ? 0 : arguments.length;
        switch (method.getName()) {
            case "close":
                return null;
            case "isClosed":
                if (isOver) {
                    return true;
                }
                break;
            case "equals":
                return proxy == arguments[0];
            case "hashCode":
                return System.identityHashCode(proxy);
            case "toString":
                return "shard connection of " + connection;
            case "commit":
                throw refuse("commits");
            case "rollback":
                // To a savepoint: the transaction goes on.
                if (count == 0) {
                    throw refuse("rolls back");
                }
                break;
            case "setAutoCommit":
                if (!Boolean.FALSE.equals(arguments[0])) {
                    throw refuse("sets autocommit");
                }
                return null;
            default:
                break;
        }
        if (isOver) {
            throw new SQLException(OVER, "08003");
        }
        try {
            return method.invoke(connection, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    private SQLException refuse(String does) {
        refused = "the work " + does + " on the connection of a shard; `write` commits after the work, and rolls back where the work throws";
        return new SQLException(isOver ? OVER : refused, "25000");
    }
}
