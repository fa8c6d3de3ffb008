//! keymill for Java: translations of the waist, and nothing else. (floor 5)
