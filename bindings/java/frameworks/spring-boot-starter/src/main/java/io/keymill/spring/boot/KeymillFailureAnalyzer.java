package io.keymill.spring.boot;

import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;

/** Says which property of keymill stopped the start, and what to write. */
final class KeymillFailureAnalyzer extends AbstractFailureAnalyzer<KeymillPropertyException> {
    static final String PAGE = "docs/languages/java-frameworks.md";

    @Override
    protected FailureAnalysis analyze(Throwable root, KeymillPropertyException e) {
        return new FailureAnalysis("The property " + e.property() + " cannot be used: " + e.reason(), e.action() + ". All properties are in keymill's " + PAGE + ".", e);
    }
}
