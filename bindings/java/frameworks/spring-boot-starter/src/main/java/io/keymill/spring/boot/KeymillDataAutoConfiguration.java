package io.keymill.spring.boot;

import io.keymill.Mill;
import io.keymill.spring.data.KeymillJdbcCallback;
import io.keymill.spring.data.KeymillR2dbcCallback;
import io.keymill.support.TableKeys;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.relational.core.dialect.Dialect;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.sql.IdentifierProcessing;
import org.springframework.data.relational.core.sql.SqlIdentifier;
import org.springframework.jdbc.core.ConnectionCallback;
import org.springframework.jdbc.core.namedparam.NamedParameterJdbcOperations;

/** Spring Data JDBC and R2DBC, each where the application has it. */
@AutoConfiguration(after = KeymillAutoConfiguration.class)
@ConditionalOnBean(Mill.class)
public class KeymillDataAutoConfiguration {
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.data.jdbc.core.mapping.JdbcMappingContext")
    static class JdbcConfiguration {
        @Bean
        @ConditionalOnMissingBean
        KeymillJdbcCallback keymillJdbcCallback(Mill mill, BeanFactory beans) {
            return new KeymillJdbcCallback(() -> mill, () -> (RelationalMappingContext) beans.getBean("jdbcMappingContext"), (table, column) -> (lowest, from) -> ask(beans, table, column, lowest, from));
        }

        /** In the present transaction. Nothing where the application reads its aggregates in another way than Boot configures it. */
        private static TableKeys.Found ask(BeanFactory beans, SqlIdentifier table, SqlIdentifier column, boolean lowest, long from) {
            NamedParameterJdbcOperations jdbc = beans.getBeanProvider(NamedParameterJdbcOperations.class).getIfUnique();
            Dialect dialect = beans.getBeanProvider(Dialect.class).getIfUnique();
            if (jdbc == null || dialect == null) {
                return TableKeys.Found.NONE;
            }
            IdentifierProcessing quoted = dialect.getIdentifierProcessing();
            ConnectionCallback<TableKeys.Found> ask = connection -> TableKeys.ask(connection, table.toSql(quoted), column.toSql(quoted), lowest, from);
            return jdbc.getJdbcOperations().execute(ask);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.data.r2dbc.mapping.event.BeforeConvertCallback")
    static class R2dbcConfiguration {
        @Bean
        @ConditionalOnMissingBean
        KeymillR2dbcCallback keymillR2dbcCallback(Mill mill, BeanFactory beans) {
            return new KeymillR2dbcCallback(() -> mill, () -> (RelationalMappingContext) beans.getBean("r2dbcMappingContext"));
        }
    }
}
