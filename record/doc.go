// Package record is the vocabulary of edged: ids that do not mix, each shared error
// once, and Kafka's record batch format v2. It imports nothing of ours; everything
// else may import it.
package record
