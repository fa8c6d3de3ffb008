package io.keymill.spring.boot;

import io.keymill.Mill;
import java.util.Map;
import org.springframework.boot.actuate.endpoint.annotation.Endpoint;
import org.springframework.boot.actuate.endpoint.annotation.ReadOperation;

/** The actuator's endpoint {@code keymill}: the store and the figures of every source in use. */
@Endpoint(id = "keymill")
public class KeymillEndpoint {
    private final Mill mill;

    KeymillEndpoint(Mill mill) {
        this.mill = mill;
    }

    /**
     * What the mill's memory says; the store is not asked.
     *
     * @return the store, and each source with its figures
     */
    @ReadOperation
    public Map<String, Object> keymill() {
        return MillState.of(mill, true).details;
    }
}
