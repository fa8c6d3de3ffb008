package io.keymill.spring.boot;

import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;

/** What {@code keymill.…} configures. */
@ConfigurationProperties(prefix = KeymillProperties.PREFIX, ignoreUnknownFields = false)
public class KeymillProperties {
    static final String PREFIX = "keymill";

    /** Whether keymill is configured at all. If not, an entity that asks for an id is an error. */
    private boolean enabled = true;
    /** The string that opens the mill: sqlite:FILE, mysql://…, postgres://…, redis://…, memory: or file:CONFIG.toml. Default: the database of the application's DataSource. */
    private String config;
    /** Sources by name, each a spec such as segment:orders?step=1000; a bean with the name as its qualifier. */
    private Map<String, String> sources = new LinkedHashMap<>();
    /** Whether the tables that the sources need are created at start where they are missing. */
    private Init init = Init.NEVER;
    /** Whether the first numbers of keymill.sources are reserved before the application takes requests; a store that is away then stops the start. */
    private boolean warmUp = true;

    /** Ids that MyBatis-Plus assigns. */
    private final MybatisPlus mybatisPlus = new MybatisPlus();

    /** Ids that MyBatis-Plus assigns. */
    public static class MybatisPlus {
        /** The source of an entity; {table} stands for its table. */
        private String source = "segment:{table}";
        /** The source of IdWorker.getId(), which knows no entity. */
        private String idWorker = "segment:id_worker";

        public String getSource() {
            return source;
        }

        public void setSource(String source) {
            this.source = source;
        }

        public String getIdWorker() {
            return idWorker;
        }

        public void setIdWorker(String idWorker) {
            this.idWorker = idWorker;
        }
    }

    /** When tables are created. */
    public enum Init {
        /** Never; the command `keymill init` or {@code Mill.init} creates them. */
        NEVER,
        /** At start, where they are missing. */
        MISSING
    }

    public boolean isEnabled() {
        return enabled;
    }

    public void setEnabled(boolean enabled) {
        this.enabled = enabled;
    }

    public String getConfig() {
        return config;
    }

    public void setConfig(String config) {
        this.config = config;
    }

    public Map<String, String> getSources() {
        return sources;
    }

    public void setSources(Map<String, String> sources) {
        this.sources = sources;
    }

    public Init getInit() {
        return init;
    }

    public void setInit(Init init) {
        this.init = init;
    }

    public boolean isWarmUp() {
        return warmUp;
    }

    public void setWarmUp(boolean warmUp) {
        this.warmUp = warmUp;
    }

    public MybatisPlus getMybatisPlus() {
        return mybatisPlus;
    }
}
