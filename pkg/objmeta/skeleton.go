package objmeta

// Decode reads the JSON value of an object's "metadata" into m, replacing all of it.
func Decode(raw []byte, m *Meta) error { return ErrInvalid }
