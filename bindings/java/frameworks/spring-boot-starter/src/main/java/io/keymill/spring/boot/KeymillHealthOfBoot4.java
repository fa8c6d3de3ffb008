package io.keymill.spring.boot;

import io.keymill.Mill;
import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;

/** For Boot 4, where health is a module of its own. */
final class KeymillHealthOfBoot4 implements HealthIndicator {
    private final Mill mill;

    KeymillHealthOfBoot4(Mill mill) {
        this.mill = mill;
    }

    @Override
    public Health health() {
        MillState state = MillState.of(mill, false);
        return (state.down ? Health.down() : Health.up()).withDetails(state.details).build();
    }
}
