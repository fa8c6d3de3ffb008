package io.keymill.spring.boot;

import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.Stats;
import java.util.LinkedHashMap;
import java.util.Map;

/** What health and the endpoint show of a mill, from its memory: the store is never asked. */
final class MillState {
    /** A source has no number left, and its refills fail. */
    final boolean down;
    final Map<String, Object> details = new LinkedHashMap<>();

    private MillState(Mill mill, boolean all) {
        boolean empty = false;
        details.put("store", mill.store());
        Map<String, Object> sources = new LinkedHashMap<>();
        for (Stats stats : mill.stats()) {
            Map<String, Object> figures = new LinkedHashMap<>();
            if (all) {
                figures.put("spec", stats.spec());
                figures.put("issued", stats.issued());
                figures.put("reserved", stats.reserved());
                figures.put("lost", stats.lost());
                figures.put("refills", stats.refills());
                figures.put("waits", stats.waits());
                figures.put("step", stats.step());
                figures.put("rate", stats.rate());
                stats.lastRefill().ifPresent(at -> figures.put("lastRefill", at.toString()));
            }
            figures.put("left", stats.left());
            stats.runway().ifPresent(runway -> figures.put("runwaySeconds", runway.toMillis() / 1000.0));
            stats.refusal().ifPresent(refusal -> figures.put("refusal", refusal));
            empty |= stats.left() == 0 && stats.refusal().isPresent();
            sources.put(stats.source(), figures);
        }
        details.put("sources", sources);
        down = empty;
    }

    private MillState(KeymillException closed) {
        down = true;
        details.put("error", closed.getMessage());
    }

    static MillState of(Mill mill, boolean all) {
        try {
            return new MillState(mill, all);
        } catch (KeymillException e) {
            return new MillState(e);
        }
    }
}
