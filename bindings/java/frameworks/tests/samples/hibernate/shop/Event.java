package shop;

import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;

@Entity
public class Event {
    @Id
    @GeneratedValue
    Long id;
    String title;

    protected Event() {}

    Event(String title) {
        this.title = title;
    }
}
