package io.keymill.shardingsphere;

import io.keymill.Mill;
import io.keymill.Route;
import io.keymill.Router;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Supplier;
import org.apache.shardingsphere.sharding.api.sharding.complex.ComplexKeysShardingAlgorithm;
import org.apache.shardingsphere.sharding.api.sharding.complex.ComplexKeysShardingValue;

/**
 * The shard of an id or of a key by its gene: {@code type: KEYMILL_GENE} in a complex sharding strategy. Properties: {@code router}, the
 * name of a router's table in the mill's store, or {@code file}; {@code id-columns} and {@code key-columns}, separated by commas;
 * {@code key-type}, {@code number} unless it is {@code text}; {@code while-moving}. A target is the shard's name, or the only name that ends
 * with an underscore and the name. A statement with an id and a key of different genes is refused.
 *
 * <p>A range that moves by number gives two targets for a key, since each row is on one of them, and one for an id. A range that is written
 * to two shards is refused unless {@code while-moving=both}: ShardingSphere does not say whether a statement reads or writes, so
 * reads would find such rows twice, and it inserts no row on two shards. A statement without an id and a key asks all targets, whatever moves.
 */
public final class KeymillGene implements ComplexKeysShardingAlgorithm<Comparable<?>> {
    private static final List<String> PROPERTIES = Arrays.asList("router", "file", "config", "id-columns", "key-columns", "key-type", "while-moving");

    private Properties properties = new Properties();
    private Set<String> ids;
    private Set<String> keys;
    private boolean text;
    private boolean both;
    private String name;
    private Supplier<Mill> mills;
    private Router fixed;
    private volatile Found found;

    /** The router of a mill. */
    private static final class Found {
        final Mill mill;
        final Router router;

        Found(Mill mill, Router router) {
            this.mill = mill;
            this.router = router;
        }
    }

    /** Made by ShardingSphere. */
    public KeymillGene() {}

    @Override
    public void init(Properties given) {
        for (Object property : given.keySet()) {
            if (!PROPERTIES.contains(property)) {
                throw new IllegalArgumentException("the sharding algorithm KEYMILL_GENE has no property `" + property + "`; it has " + String.join(", ", PROPERTIES));
            }
        }
        mills = Mills.of(given);
        properties = given;
        ids = columns(given.getProperty("id-columns", ""));
        keys = columns(given.getProperty("key-columns", ""));
        if (ids.isEmpty() && keys.isEmpty()) {
            throw new IllegalArgumentException("the sharding algorithm KEYMILL_GENE has neither `id-columns` nor `key-columns`; name the columns with ids and those with keys");
        }
        String type = given.getProperty("key-type", "number");
        if (!type.equals("number") && !type.equals("text")) {
            throw new IllegalArgumentException("`key-type` is `" + type + "`; it is number or text");
        }
        text = type.equals("text");
        String moving = given.getProperty("while-moving", "refuse");
        if (!moving.equals("refuse") && !moving.equals("both")) {
            throw new IllegalArgumentException("`while-moving` is `" + moving + "`; it is refuse or both");
        }
        both = moving.equals("both");
        name = given.getProperty("router");
        String file = given.getProperty("file");
        if ((name == null) == (file == null)) {
            throw new IllegalArgumentException("the sharding algorithm KEYMILL_GENE takes `router`, the name of a table in the mill's store, or `file`, and one of them");
        }
        if (file != null) {
            fixed = Router.open(file);
        }
    }

    /** ShardingSphere compares names of columns without their case. */
    private static Set<String> columns(String text) {
        Set<String> columns = new TreeSet<>(String.CASE_INSENSITIVE_ORDER);
        for (String column : text.split(",")) {
            if (!column.trim().isEmpty()) {
                columns.add(column.trim());
            }
        }
        return columns;
    }

    private Router router() {
        if (fixed != null) {
            return fixed;
        }
        Mill mill = mills.get();
        Found now = found;
        if (now == null || now.mill != mill) {
            now = new Found(mill, mill.router(name));
            found = now;
        }
        return now.router;
    }

    @Override
    public Collection<String> doSharding(Collection<String> targets, ComplexKeysShardingValue<Comparable<?>> value) {
        Map<String, Collection<Comparable<?>>> values = value.getColumnNameAndShardingValuesMap();
        Router router = router();
        List<Located> byId = located(router, values, ids, false);
        List<Located> byKey = located(router, values, keys, true);
        oneGene(byId, byKey);
        Set<String> found = new LinkedHashSet<>();
        // An id says more than its key: which of two shards has it.
        for (Located each : byId.isEmpty() ? byKey : byId) {
            add(found, targets, each.route);
        }
        // A range of ids or keys may have every gene, and so may rows without a key.
        return found.isEmpty() ? targets : found;
    }

    /** Where the values of these columns belong. */
    private List<Located> located(Router router, Map<String, Collection<Comparable<?>>> values, Set<String> columns, boolean byKey) {
        List<Located> found = new ArrayList<>();
        String empty = null;
        for (Map.Entry<String, Collection<Comparable<?>>> column : values.entrySet()) {
            if (columns.contains(column.getKey())) {
                for (Object each : column.getValue()) {
                    // ShardingSphere 5.5 gives null for a column that an INSERT does not name.
                    if (each == null) {
                        empty = column.getKey();
                    } else {
                        Route route = byKey ? key(router, each, column.getKey()) : id(router, each, column.getKey());
                        found.add(new Located(column.getKey(), each, route, column.getValue().size() > 1));
                    }
                }
            }
        }
        if (!byKey && empty != null && found.isEmpty()) {
            throw new IllegalArgumentException("the id column " + empty + " is null, or not among the columns of the INSERT; give it an id of Mill.business(…).next(key)");
        }
        return found;
    }

    /** A row whose columns have two genes would be looked for on a shard where it is not, if not today, then after a move. */
    private static void oneGene(List<Located> byId, List<Located> byKey) {
        Located first = null;
        for (List<Located> all : Arrays.asList(byId, byKey)) {
            for (Located each : all) {
                // Several values of a column are a condition's: ShardingSphere asks for each row of an INSERT by itself.
                if (each.amongOthers) {
                    continue;
                }
                if (first == null) {
                    first = each;
                } else if (each.route.gene() != first.route.gene()) {
                    throw new IllegalArgumentException(first + " and " + each + ", so they belong to different rows: the row would be on one shard and looked for on another; take a row's ids from Mill.business(…).next(key), with the key of the row");
                }
            }
        }
    }

    /** A value of a statement, and where it belongs. */
    private static final class Located {
        final String column;
        final Object value;
        final Route route;
        final boolean amongOthers;

        Located(String column, Object value, Route route, boolean amongOthers) {
            this.column = column;
            this.value = value;
            this.route = route;
            this.amongOthers = amongOthers;
        }

        @Override
        public String toString() {
            return column + " " + value + " has gene " + route.gene();
        }
    }

    private void add(Set<String> found, Collection<String> targets, Route route) {
        if (route.paused()) {
            throw new IllegalStateException("gene " + route.gene() + ": the move of its range is about to be finished, and its writes wait; ShardingSphere does not say whether a statement writes, so try it again in a second");
        }
        found.add(target(targets, route.read()));
        route.also().ifPresent(also -> found.add(target(targets, also)));
        if (route.mirror().isPresent()) {
            if (!both) {
                throw new IllegalStateException("gene " + route.gene() + " is written to two shards, " + route.shard() + " and " + route.mirror().get() + ", while its range moves, and ShardingSphere does not say whether a statement reads or writes; wait for the move's end, or set while-moving=both where rows that are found twice do no harm");
            }
            found.add(target(targets, route.shard()));
            found.add(target(targets, route.mirror().get()));
        }
    }

    private static String target(Collection<String> targets, String shard) {
        Set<String> fitting = new TreeSet<>();
        for (String target : targets) {
            if (target.equals(shard)) {
                return target;
            }
            if (target.endsWith("_" + shard)) {
                fitting.add(target);
            }
        }
        if (fitting.size() == 1) {
            return fitting.iterator().next();
        } else if (fitting.isEmpty()) {
            throw new IllegalStateException("no target is the shard `" + shard + "` of the router's table, or ends with `_" + shard + "`; the targets are " + new TreeSet<>(targets));
        }
        throw new IllegalStateException("the targets " + fitting + " all end with `_" + shard + "`, and which of them is the shard `" + shard + "` of the router's table is not known; name that target `" + shard + "`, or rename the shards, so that no name ends with another");
    }

    private static Route id(Router router, Object id, String column) {
        if (id instanceof Long || id instanceof Integer) {
            return router.route(((Number) id).longValue());
        } else if (id instanceof BigInteger) {
            return ((BigInteger) id).bitLength() < 64 ? router.route(((BigInteger) id).longValue()) : router.routeWide((BigInteger) id);
        }
        throw new IllegalArgumentException("the id column " + column + " has `" + id + "`, a " + id.getClass().getName() + "; it has a long, an int or a BigInteger");
    }

    private Route key(Router router, Object key, String column) {
        if (!text && (key instanceof Long || key instanceof Integer)) {
            return router.routeKey(((Number) key).longValue());
        } else if (text && key instanceof String) {
            return router.routeKey((String) key);
        }
        // A database takes both for one key.
        throw new IllegalArgumentException("the key column " + column + " has `" + key + "`, a " + key.getClass().getName() + "; with `key-type: number`, the default, it has a long or an int, and with `key-type: text` a String: 42 and \"42\" have different genes");
    }

    @Override
    public String getType() {
        return "KEYMILL_GENE";
    }

    /**
     * What it was made with, for ShardingSphere 5.2.
     *
     * @return the properties
     */
    @Override
    public Properties getProps() {
        return properties;
    }
}
