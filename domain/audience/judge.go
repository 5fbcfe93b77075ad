package audience

import "github.com/google/uuid"

// Judge reports whether an identity matches a rule, and each of its conditions.
func (r Rule) Judge(project uuid.UUID, traits TraitKeys) (matches bool, conditions []bool, err error) {
	var m Matcher
	whole, conditions := uuid.Max, make([]bool, len(r.Conditions))
	if err := m.Add(whole, Compile(project, r)); err != nil {
		return false, nil, err
	}
	for n, c := range r.Conditions {
		alone := Rule{Match: MatchAll, Conditions: []Condition{c}}
		if err := m.Add(uuid.UUID{14: byte(n >> 8), 15: byte(n)}, Compile(project, alone)); err != nil {
			return false, nil, err
		}
	}
	for _, id := range m.Reached(traits) {
		if id == whole {
			matches = true
		} else {
			conditions[int(id[14])<<8|int(id[15])] = true
		}
	}
	return matches, conditions, nil
}
