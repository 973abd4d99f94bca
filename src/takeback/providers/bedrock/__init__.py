"""Amazon Bedrock's Converse."""
