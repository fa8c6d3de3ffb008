package io.keymill.spring.boot;

import io.keymill.Mill;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;

/** For Boot 2.7 and 3. */
final class KeymillHealth implements HealthIndicator {
    private final Mill mill;

    KeymillHealth(Mill mill) {
        this.mill = mill;
    }

    @Override
    public Health health() {
        MillState state = MillState.of(mill, false);
        return (state.down ? Health.down() : Health.up()).withDetails(state.details).build();
    }
}
