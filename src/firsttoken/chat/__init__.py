"""Chat front ends. They speak HTTP to a server and import no other part."""
