package io.keymill.spring.boot;

import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;

/** Says what of keymill stopped the start, and what to write. */
final class KeymillFailureAnalyzer extends AbstractFailureAnalyzer<KeymillPropertyException> {
    @Override
    protected FailureAnalysis analyze(Throwable root, KeymillPropertyException e) {
        String what = e.property() == null ? "" : "The property " + e.property() + " cannot be used: ";
        return new FailureAnalysis(what + e.reason(), e.action() + ".", e);
    }
}
