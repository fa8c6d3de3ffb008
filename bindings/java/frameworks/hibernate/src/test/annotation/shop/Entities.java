package shop;

import io.keymill.hibernate.KeymillId;
import jakarta.persistence.Column;
import jakarta.persistence.Embeddable;
import jakarta.persistence.EmbeddedId;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.IdClass;
import jakarta.persistence.Inheritance;
import jakarta.persistence.InheritanceType;
import jakarta.persistence.MappedSuperclass;
import jakarta.persistence.Table;
import java.io.Serializable;
import java.math.BigInteger;
import java.util.Objects;

/** What the tests store. */
final class Entities {
    static final Class<?>[] ALL = {
        Order.class, Small.class, Tiny.class, Texts.class, Getter.class, Joined.class, JoinedChild.class, Single.class, SingleChild.class, PerClass.class,
        PerClassChild.class, OfSuperclass.class, Line.class, Snow.class, Huge.class, Part.class, GenericLong.class, GenericText.class
    };

    private Entities() {}

    @Entity(name = "Order")
    @Table(name = "orders")
    static class Order {
        @Id @KeymillId Long id;

        @KeymillId("serial:{table}/no?number=000000")
        @Column(name = "no")
        String no;

        String what;
    }

    @Entity(name = "Small")
    @Table(name = "small_ones")
    static class Small {
        @Id
        @KeymillId("segment:small?start=2147483647&step=10")
        int id;
    }

    @Entity(name = "Tiny")
    @Table(name = "tiny")
    static class Tiny {
        @Id @KeymillId short id;
    }

    @Entity(name = "Texts")
    @Table(name = "texts")
    static class Texts {
        @Id @KeymillId String id;
    }

    @Entity(name = "Huge")
    @Table(name = "huge")
    static class Huge {
        @Id @KeymillId BigInteger id;
    }

    @Entity(name = "Getter")
    @Table(name = "Letter Case?")
    static class Getter {
        private long id;

        @Id
        @KeymillId
        public long getId() {
            return id;
        }

        public void setId(long id) {
            this.id = id;
        }
    }

    @Entity(name = "Snow")
    @Table(name = "snow")
    static class Snow {
        @Id
        @KeymillId("snowflake:{table}?worker=5")
        Long id;
    }

    @Entity(name = "Joined")
    @Table(name = "joined")
    @Inheritance(strategy = InheritanceType.JOINED)
    static class Joined {
        @Id @KeymillId Long id;
    }

    @Entity(name = "JoinedChild")
    @Table(name = "joined_child")
    static class JoinedChild extends Joined {
        @KeymillId Long number;
    }

    @Entity(name = "Single")
    @Table(name = "single")
    @Inheritance(strategy = InheritanceType.SINGLE_TABLE)
    static class Single {
        @Id @KeymillId Long id;
    }

    @Entity(name = "SingleChild")
    static class SingleChild extends Single {}

    @Entity(name = "PerClass")
    @Table(name = "per_class")
    @Inheritance(strategy = InheritanceType.TABLE_PER_CLASS)
    static class PerClass {
        @Id @KeymillId Long id;
    }

    @Entity(name = "PerClassChild")
    @Table(name = "per_class_child")
    static class PerClassChild extends PerClass {}

    @MappedSuperclass
    static class Superclass {
        @Id @KeymillId Long id;
    }

    @Entity(name = "OfSuperclass")
    @Table(name = "of_superclass")
    static class OfSuperclass extends Superclass {}

    @Embeddable
    static class LineId implements Serializable {
        private static final long serialVersionUID = 1;

        @KeymillId Long line;

        long orderId;

        @Override
        public boolean equals(Object other) {
            return other instanceof LineId && Objects.equals(((LineId) other).line, line) && ((LineId) other).orderId == orderId;
        }

        @Override
        public int hashCode() {
            return Objects.hash(line, orderId);
        }
    }

    @Entity(name = "Line")
    @Table(name = "line")
    static class Line {
        @EmbeddedId LineId id = new LineId();
    }

    static class PartId implements Serializable {
        private static final long serialVersionUID = 1;

        Long id;
        Long part;

        @Override
        public boolean equals(Object other) {
            return other instanceof PartId && Objects.equals(((PartId) other).id, id) && Objects.equals(((PartId) other).part, part);
        }

        @Override
        public int hashCode() {
            return Objects.hash(id, part);
        }
    }

    @Entity(name = "Part")
    @Table(name = "part")
    @IdClass(PartId.class)
    static class Part {
        @Id @KeymillId Long id;
        @Id Long part;
    }

    @MappedSuperclass
    static class Generic<T> {
        @Id @KeymillId T id;
    }

    @Entity(name = "GenericLong")
    @Table(name = "generic_long")
    static class GenericLong extends Generic<Long> {}

    @Entity(name = "GenericText")
    @Table(name = "generic_text")
    static class GenericText extends Generic<String> {}
}
