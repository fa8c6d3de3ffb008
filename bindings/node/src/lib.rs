//! keymill for Node: translations of the waist, and nothing else. (floor 5)
