//! keymill for Python: translations of the waist, and nothing else. (floor 5)
