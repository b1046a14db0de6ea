"""Between hermes-agent's files and native stores: adopting them, giving them back, and keeping the two apart."""
