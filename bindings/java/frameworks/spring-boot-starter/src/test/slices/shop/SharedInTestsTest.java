package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.LazySource;
import io.keymill.Mill;
import io.keymill.spring.boot.KeymillAutoConfiguration;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.boot.test.autoconfigure.data.jdbc.DataJdbcTest;
import org.springframework.context.ApplicationContext;
import org.springframework.test.annotation.DirtiesContext;
import org.springframework.test.context.TestContextManager;

/** Test classes of the application of {@link SlicesTest} whose application contexts Spring keeps: a lazy source takes from the mill of the present one. */
class SharedInTestsTest {
    private static final LazySource IDS = Mill.lazy("segment:shared_in_tests");

    @DataJdbcTest(properties = {"keymill.config=memory:", "shop.name=first"})
    static class First {}

    @DataJdbcTest(properties = {"keymill.config=memory:", "shop.name=second"})
    static class Second {}

    @DataJdbcTest(properties = {"keymill.config=memory:", "shop.name=none"}, excludeAutoConfiguration = KeymillAutoConfiguration.class)
    static class WithoutMill {}

    @AfterEach
    void share_none() {
        Mill.share(null);
        assertFalse(Files.exists(Path.of("keymill.db")));
    }

    /** As a runner begins a test of the class. */
    private static TestContextManager begin(Class<?> test) throws Exception {
        TestContextManager manager = new TestContextManager(test);
        manager.beforeTestClass();
        manager.prepareTestInstance(test.getDeclaredConstructor().newInstance());
        return manager;
    }

    private static void isNextOf(TestContextManager test) {
        ApplicationContext context = test.getTestContext().getApplicationContext();
        long before = context.getBean(Mill.class).source(IDS.spec()).stats().issued();
        assertEquals(before + 1, IDS.next());
        assertEquals(before + 1, context.getBean(Mill.class).source(IDS.spec()).stats().issued(), "of another context's mill");
    }

    @Test
    void ids_come_from_the_mill_of_the_tests_own_context() throws Exception {
        for (int round = 0; round < 3; round++) {
            for (Class<?> test : new Class<?>[] {First.class, First.class, Second.class}) {
                isNextOf(begin(test));
            }
        }
        begin(WithoutMill.class);
        String said = assertThrows(IllegalStateException.class, IDS::next).getMessage();
        assertTrue(said.startsWith("the application context of this test has no mill, and the shared one is another context's: set keymill.config"), said);
        TestContextManager dirty = begin(Second.class);
        isNextOf(dirty);
        dirty.getTestContext().markApplicationContextDirty(DirtiesContext.HierarchyMode.EXHAUSTIVE);
        isNextOf(begin(First.class));
        isNextOf(begin(Second.class));
    }

    @Test
    void what_a_class_has_shared_itself_ends_with_it() throws Exception {
        isNextOf(begin(First.class));
        Mill.share(null);
        isNextOf(begin(First.class));
        try (Mill own = Mill.open("memory:")) {
            Mill.share(own);
        }
        isNextOf(begin(First.class));
    }

    @Test
    void a_mill_that_a_test_shares_itself_stays() throws Exception {
        begin(First.class);
        TestContextManager manager = new TestContextManager(WithoutMill.class);
        manager.beforeTestClass();
        try (Mill own = Mill.open("memory:")) {
            Mill.share(own);
            manager.prepareTestInstance(new WithoutMill());
            assertEquals(1, IDS.next());
        }
    }
}
