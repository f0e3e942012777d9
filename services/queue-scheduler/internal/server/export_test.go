package server

// Watchers counts who watches.
func (f *Feed) Watchers() int { return len(f.subscriberChannels()) }

// Noticed reports that no notice of a change is left to be seen.
func (f *Feed) Noticed() bool { return len(f.changed) == 0 }
