package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.baomidou.mybatisplus.core.conditions.query.QueryWrapper;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.jdbc.core.JdbcTemplate;

/** A first program with MyBatis-Plus: users are inserted, selected, changed and deleted. */
class UserTest {
    @SpringBootApplication
    static class Shop {}

    @Test
    void what_is_inserted_is_selected() {
        try (ConfigurableApplicationContext context = new SpringApplicationBuilder(Shop.class).web(WebApplicationType.NONE)
                .properties("spring.main.banner-mode=off", "logging.level.root=warn").run()) {
            context.getBean(JdbcTemplate.class).execute("create table users (id bigint primary key, name varchar(30), age int)");
            UserMapper users = context.getBean(UserMapper.class);
            User ada = user("Ada", 36);
            User bob = user("Bob", 40);
            assertEquals(1, users.insert(ada));
            assertEquals(1, users.insert(bob));
            assertTrue(ada.getId() < bob.getId());
            assertEquals("Bob", users.selectById(bob.getId()).getName());
            ada.setAge(37);
            assertEquals(1, users.updateById(ada));
            List<User> older = users.selectList(new QueryWrapper<User>().gt("age", 36).orderByAsc("id"));
            assertEquals(List.of(ada.getId(), bob.getId()), older.stream().map(User::getId).toList());
            assertEquals(1, users.deleteById(ada.getId()));
            assertEquals(1, users.selectCount(null));
        }
    }

    private static User user(String name, int age) {
        User user = new User();
        user.setName(name);
        user.setAge(age);
        return user;
    }
}
